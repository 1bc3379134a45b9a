"""Whatever a caller sends, the answer is OpenAI's envelope, and it is never a 500 (OPENAI_CONTRACT 1.10)."""

import gzip
import json
import logging
import socket
from typing import Any

import httpx
import pytest

from app.api import models as models_api
from app.db.store import DatabaseUnavailable
from tests.served import ADMIN_KEY, Served

NASTY = ["a\0b", "\ud800", "\u2028", "💥", "'; DROP TABLE file; --", "x" * 3_000, "%00", "\\u0000", ""]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert set(body) == {"error"}, body
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return error


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "unknown_url"),
        ("GET", "/v1/nope", 404, "unknown_url"),
        ("PUT", "/v1/batches", 405, "method_not_allowed"),
        ("PATCH", "/v1/files", 405, "method_not_allowed"),
        ("GET", "/v1/files/", 404, "unknown_url"),
        ("POST", "/v1/chat/completions", 404, "batches_only"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
        ("GET", "/v1/models/org/nope", 404, "model_not_found"),
        ("GET", "/v1/events?after=x", 400, "invalid_value"),
        ("GET", f"/v1/events?after={'0' * 5000}1", 400, "invalid_value"),
        ("GET", "/v1/events?limit=x", 400, "invalid_value"),
        ("GET", "/v1/files?order=up", 400, "invalid_value"),
        ("GET", "/v1/files?after=file-nope", 400, "invalid_value"),
    ],
)
def test_every_error_has_the_envelope(served_on_sqlite: Served, method: str, path: str, status: int, code: str) -> None:
    with served_on_sqlite.http() as http:
        answer = http.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)


def test_a_base_url_without_v1_is_told_what_it_lacks(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http() as http:
        said = {path: error_of(http.post(path))["message"] for path in ("/files", "/nope", "/v1/nope")}
    assert said == {
        "/files": "Invalid URL (POST /files). There is /v1/files: an OpenAI client's base URL ends in /v1",
        "/nope": "Invalid URL (POST /nope)",
        "/v1/nope": "Invalid URL (POST /v1/nope)",
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{not json", "invalid_json"),
        (b"", "invalid_body"),
        (b"[]", "invalid_body"),
        (b"null", "invalid_body"),
        (b'"text"', "invalid_body"),
        (b"[" * 100_000, "too_many_values"),
        (b"[" * 10_000, None),
        (b"\xff\xfe", "invalid_json"),
        (b'{"endpoint": "/v1/chat/completions", "completion_window": NaN, "input_file_id": "x"}', "invalid_value"),
        (b'{"endpoint": ' + b"9" * 5000 + b"}", None),
    ],
)
def test_a_body_that_is_none_is_a_400(served_on_sqlite: Served, body: bytes, code: str | None) -> None:
    with served_on_sqlite.http() as http:
        answer = http.post("/v1/batches", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert error_of(answer)["code"] == code


@pytest.mark.parametrize("path", ["/v1/batches", "/v1/files", "/workers/register"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, zstd", "x" * 3_000])
def test_a_body_that_is_compressed_is_a_415_that_names_its_encoding(
    served_on_sqlite: Served, path: str, encoding: str
) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    with served_on_sqlite.http() as http:
        answer = http.post(path, content=gzip.compress(b"{}"), headers=headers)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (415, "unsupported_content_encoding")
    assert answer.headers["accept-encoding"] == "identity"
    assert f"'{encoding[:40]}" in error["message"]
    assert len(error["message"]) < 300


def test_a_body_that_says_it_is_not_compressed_is_taken(served_on_sqlite: Served) -> None:
    headers = {"content-type": "application/json", "content-encoding": "Identity"}
    with served_on_sqlite.http() as http:
        assert error_of(http.post("/v1/batches", content=b"[]", headers=headers))["code"] == "invalid_body"


def test_a_body_that_is_too_large_is_a_413(served_on_sqlite: Served) -> None:
    whole = b" " * 2_000_000
    with served_on_sqlite.http() as http:
        for body in (whole, (whole[at : at + 50_000] for at in range(0, len(whole), 50_000))):
            answer = http.post("/v1/batches", content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, error_of(answer)["code"]) == (413, "request_too_large")


def test_no_text_is_too_strange(served: Served) -> None:
    """Each string a caller may send, in each place it may stand, on both databases."""
    batch = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": "file-1"}
    with served.http() as http:
        for nasty in NASTY:
            sent = json.dumps(nasty).encode()
            text = nasty.encode("utf-8", "surrogatepass")
            quoted = "".join(f"%{byte:02x}" for byte in text)
            calls: list[tuple[str, str, Any]] = [
                ("POST", "/v1/tokens", {"name": nasty}),
                ("POST", "/v1/tokens", {"name": "x", "org": nasty}),
                ("POST", "/v1/orgs", {"name": nasty}),
                ("POST", "/v1/pools", {"name": nasty}),
                ("PATCH", f"/v1/pools/{quoted or '-'}", {}),
                *(("POST", "/v1/batches", batch | {name: nasty}) for name in (*batch, "pool", "group")),
                ("POST", "/v1/batches", batch | {"metadata": {nasty: nasty}}),
            ]
            for method, path, fields in calls:
                body = json.dumps(fields).encode()
                assert sent in body or method == "PATCH"
                answer = http.request(method, path, content=body, headers={"content-type": "application/json"})
                assert answer.status_code < 500, (nasty, path, answer.text)
            for path in ("/v1/files", "/v1/batches", "/v1/workers", "/v1/tokens", "/v1/models", "/v1/pools"):
                for url in (f"{path}/{quoted or '-'}", f"{path}?after={quoted}&subject={quoted}&purpose={quoted}"):
                    assert http.get(url).status_code < 500, url
            for url in (f"/v1/events?subject={quoted}", f"/v1/workers?pool={quoted}"):
                assert http.get(url).status_code < 500, url
            header = {"Idempotency-Key": nasty.encode("latin-1", "ignore").replace(b"\0", b"") or b"x"}
            assert http.post("/v1/batches", json=batch, headers=header).status_code < 500


def test_a_request_id_of_the_callers_own_comes_back(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http() as http:
        assert http.get("/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
        made = http.get("/healthz", headers={"x-request-id": "a b\tc"}).headers["x-request-id"]
        assert made.startswith("req_")
        assert http.get("/healthz").headers["x-request-id"] != made


def test_a_database_that_is_away_is_a_503_to_try_again(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    store = served.yard.store

    def away(*_: object) -> None:
        raise DatabaseUnavailable("it is gone: no route to db.internal, user gpuyard")

    original, store.read = store.read, away  # type: ignore[assignment, method-assign]
    try:
        with served.http() as http:
            answer = http.get("/v1/batches/batch_1")
            ready = http.get("/readyz")
    finally:
        store.read = original  # type: ignore[method-assign]
    assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert ready.json()["parts"]["database"] == "it is gone", "whoever has no key learns of no host"
    assert "not ready: it is gone: no route to db.internal" in caplog.text


def test_a_bug_of_ours_says_where_the_log_has_it(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def buggy(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(models_api.models, "listed", buggy)
    with caplog.at_level(logging.ERROR), served_on_sqlite.http() as http:
        answer = http.get("/v1/models", headers={"x-request-id": "find-me"})
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
    assert "find-me" in error_of(answer)["message"]
    assert any(record.exc_info for record in caplog.records)


def test_bytes_that_are_no_http_do_not_hurt(served_on_sqlite: Served) -> None:
    host, port = served_on_sqlite.url.removeprefix("http://").split(":")
    auth = f"Authorization: Bearer {ADMIN_KEY}\r\nHost: x\r\n".encode()
    for request in (b"\x00\x01\x02\r\n\r\n", b"GET /v1/files/\xff\xfe HTTP/1.1\r\n" + auth + b"\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(request)
            assert not connection.recv(100).startswith(b"HTTP/1.1 500")
    with served_on_sqlite.http() as http:
        assert http.get("/healthz").json() == {"status": "ok"}


def test_ready_says_that_each_part_works(served: Served) -> None:
    with served.http(None) as http:
        answer = http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["parts"] == {"database": "ok", "schema": "ok", "blobs": "ok"}
    assert "sweep_age_seconds" in answer.json()
