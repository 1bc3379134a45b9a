"""What a caller does about an answer is decided by its branch of the error tree (R-11)."""

import httpx
import pytest

from app.client.errors import (
    ControlPlaneError,
    Dismissed,
    LeaseLost,
    NameTaken,
    NotKnown,
    Refused,
    Superseded,
    TryLater,
    error_of,
)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "invalid_api_key", Dismissed),
        (403, None, Dismissed),
        (403, "not_assigned", LeaseLost),
        (412, None, Dismissed),
        (426, None, Dismissed),
        (409, "name_taken", NameTaken),
        (409, "superseded", Superseded),
        (409, "whatever_else", LeaseLost),
        (409, None, LeaseLost),
        (400, None, Refused),
        (404, None, Refused),
        (404, "no_worker", NotKnown),
        (413, None, Refused),
        (407, None, TryLater),
        (408, None, TryLater),
        (429, None, TryLater),
        (500, None, TryLater),
        (503, "try_later", TryLater),
    ],
)
def test_each_answer_has_one_branch(status: int, code: str | None, expected: type[ControlPlaneError]) -> None:
    error = error_of(httpx.Response(status, json={"error": {"message": "no", "code": code, "param": "p"}}))
    assert type(error) is expected
    assert (error.status, error.code, error.message, error.param) == (status, code, "no", "p")


@pytest.mark.parametrize("body", [b"<html>proxy</html>", b"[]", b'"text"', b'{"error": "text"}', b"\xff"])
def test_an_answer_without_an_envelope_keeps_its_text(body: bytes) -> None:
    error = error_of(httpx.Response(403, content=body))
    assert type(error) is Dismissed
    assert error.message


def test_a_page_of_html_gives_way_to_what_its_status_means() -> None:
    page = b"<html>\r\n<head><title>502 Bad Gateway</title></head>"
    error = error_of(httpx.Response(502, content=page, headers={"content-type": "text/html; charset=utf-8"}))
    assert (type(error), error.message) == (TryLater, "Bad Gateway")


def test_an_integer_code_becomes_text() -> None:
    assert error_of(httpx.Response(400, json={"error": {"message": "m", "code": 400}})).code == "400"


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", None), ("-1", None)])
def test_only_a_number_of_seconds_is_taken_from_retry_after(header: str, seconds: float | None) -> None:
    error = error_of(httpx.Response(503, headers={"retry-after": header}))
    assert isinstance(error, TryLater)
    assert error.retry_after == seconds


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_proxy_that_sends_callers_on_is_no_answer_of_the_control_plane(status: int) -> None:
    error = error_of(httpx.Response(status, headers={"location": "https://yard.example.org/"}))
    assert type(error) is TryLater
    assert "sends callers on to https://yard.example.org/" in error.message
