"""B-14: which failures of a batch's first rows are alike."""

import json
from typing import Any

import pytest

from app.domain.first_rows import MAX_KIND, MAX_MESSAGE, kind_of, said, way_out
from app.domain.rows import Reply, RowError, RowErrorCode


def refused(status: int = 400, **error: Any) -> Reply:
    return Reply(status=status, body=json.dumps({"error": error}).encode())


def test_rows_that_differ_in_their_message_only_are_alike() -> None:
    one = refused(type="BadRequestError", code=400, message="9001 tokens are too many")
    two = refused(type="BadRequestError", code=400, message="9002 tokens are too many")
    assert kind_of(one) == kind_of(two) == "400 BadRequestError 400"
    assert said(two) == "9002 tokens are too many"


@pytest.mark.parametrize(
    "other",
    [
        refused(422, type="invalid_request_error", code="too_long"),
        refused(type="not_found_error", code="too_long"),
        refused(type="invalid_request_error", code="no_such_parameter"),
        refused(type="invalid_request_error"),
        Reply(error=RowError(RowErrorCode.MODEL_NOT_FOUND, "too_long")),
    ],
    ids=["status", "type", "code", "no code", "our own"],
)
def test_status_type_and_code_make_the_kind(other: Reply) -> None:
    assert kind_of(other) != kind_of(refused(type="invalid_request_error", code="too_long"))


def test_our_own_code_is_a_kind() -> None:
    assert kind_of(Reply(error=RowError(RowErrorCode.MODEL_NOT_FOUND, "no model"))) == "model_not_found"


@pytest.mark.parametrize("body", [b"null", b"[1]", b'{"error": "no"}', b"no json", b'{"detail": 1}'])
def test_a_body_without_an_error_has_its_status(body: bytes) -> None:
    reply = Reply(status=400, body=body)
    assert (kind_of(reply), said(reply)) == ("400", "")


def test_what_goes_over_the_wire_is_short_and_whole_text() -> None:
    half = rb"\ud800"
    body = b'{"error":{"type":"%s","message":"%s"}}' % (half + b"t" * 5000, half + b"m" * 5000)
    reply = Reply(status=400, body=body)
    assert len(kind_of(reply)) == MAX_KIND
    assert len(said(reply)) == MAX_MESSAGE
    assert (kind_of(reply) + said(reply)).encode()


def test_the_way_out_is_named() -> None:
    assert "12 of 20 rows were not run" in way_out(not_run=12, total=20)
    assert "canary_rows: 0" in way_out(not_run=12, total=20)
