"""Lines of the output and error files: their shape, their bytes, and their ids."""

import json
from dataclasses import replace

import pytest

from app.domain.outputs import NO_ID, output_line, quoted, quoted_id
from app.domain.rows import Reply, RowError, RowErrorCode

ANSWER = Reply(status=200, body=b'{"a": 1.0,  "b":"\\u2028"}', request_id="req_1")


def test_an_answer_stands_untouched_in_response_and_error_is_null() -> None:
    line = output_line("batch_1", 0, "a", ANSWER)
    assert b'"body":{"a": 1.0,  "b":"\\u2028"}},"error":null}' in line
    parsed = json.loads(line)
    assert list(parsed) == ["id", "custom_id", "response", "error"]
    assert parsed["custom_id"] == "a"
    assert parsed["response"] == {"status_code": 200, "request_id": "req_1", "body": {"a": 1.0, "b": "\u2028"}}


def test_what_was_left_out_of_the_row_stands_beside_its_answer() -> None:
    line = output_line("batch_1", 0, "a", replace(ANSWER, dropped=("logit_bias", "\u2028")))
    assert line.isascii()
    response = json.loads(line)["response"]
    assert list(response) == ["status_code", "request_id", "body", "gpuyard"]
    assert response["gpuyard"] == {"dropped_parameters": ["logit_bias", "\u2028"]}


def test_a_failing_answer_of_the_runtime_is_a_response_too() -> None:
    parsed = json.loads(output_line("batch_1", 0, "a", Reply(status=400, body=b'{"error":{}}')))
    assert parsed["response"]["status_code"] == 400
    assert parsed["error"] is None


def test_a_row_without_an_answer_has_an_error_and_no_response() -> None:
    reply = Reply(error=RowError(RowErrorCode.BATCH_EXPIRED, 'it said "no"\n\u2028'))
    parsed = json.loads(output_line("batch_1", 0, None, reply))
    assert parsed["custom_id"] is None
    assert parsed["response"] is None
    assert parsed["error"] == {"code": "batch_expired", "message": 'it said "no"\n\u2028'}


@pytest.mark.parametrize("custom_id", ["日本", "a\r\nX: y", "\x00", "😀", "\u2028\u0085", "half \ud83d", '"\\'])
def test_any_id_comes_back_exactly_in_one_line_of_ascii(custom_id: str) -> None:
    for reply in (ANSWER, Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, custom_id))):
        line = output_line("batch_1", 0, custom_id, reply)
        assert line.isascii()
        assert line.decode().splitlines() == [line.decode()]
        assert json.loads(line)["custom_id"] == custom_id


def test_the_id_follows_from_batch_and_row_and_nothing_else() -> None:
    ids = {json.loads(output_line(batch, row, "a", ANSWER))["id"] for batch in ("b1", "b2") for row in range(100)}
    assert len(ids) == 200
    assert all(line_id.startswith("batch_req_") for line_id in ids)
    again = output_line("b1", 7, "other", Reply(error=RowError(RowErrorCode.WORKER_LOST, "")))
    assert json.loads(again)["id"] in ids


def test_an_answer_without_a_request_id_gets_one() -> None:
    parsed = json.loads(output_line("batch_1", 0, "a", Reply(status=200, body=b"{}")))
    assert parsed["response"]["request_id"].startswith("req_")


def test_a_reply_that_says_nothing_is_a_bug_and_not_a_line() -> None:
    with pytest.raises(ValueError, match="neither"):
        output_line("batch_1", 0, "a", Reply())


@pytest.mark.parametrize("custom_id", ["row-1", '","response":', "\\", '"', "質問", "\u2028", "null"])
def test_the_id_of_a_line_is_read_as_it_is_written_there(custom_id: str) -> None:
    for reply in (Reply(status=200, body=b'{"response":null}'), Reply(error=RowError(RowErrorCode.WORKER_LOST, "x"))):
        found = quoted_id(output_line("batch_1", 7, custom_id, reply))
        assert found == quoted(custom_id) != NO_ID
        assert json.loads(found) == custom_id
    assert quoted_id(output_line("batch_1", 7, None, Reply(status=200, body=b"1"))) == NO_ID
