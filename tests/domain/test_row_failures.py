"""Lines of failed rows, read back and counted."""

import json
from collections.abc import Iterable

import pytest

from app.domain.outputs import output_line
from app.domain.row_failures import MAX_KINDS, MAX_MESSAGES, Failures, failed_row, matches
from app.domain.rows import Reply, RowError, RowErrorCode


def line(reply: Reply) -> bytes:
    return output_line("batch_1", 0, "row", reply)


def answered(status: int, body: object) -> bytes:
    return line(Reply(status=status, body=json.dumps(body).encode()))


def lost(message: str) -> bytes:
    return line(Reply(error=RowError(RowErrorCode.WORKER_LOST, message)))


def counted(lines: Iterable[bytes]) -> Failures:
    failures = Failures()
    for each in lines:
        failures.add(failed_row(each))
    return failures


def test_kinds_are_counted_and_the_most_frequent_comes_first() -> None:
    lines = [lost("gone"), answered(500, {"error": {"message": "no", "type": "server_error"}}), lost("gone")]
    found = counted(lines)
    assert found.rows == 3
    assert found.most_frequent(5) == [("worker_lost", "gone", 2), ("500 server_error", "no", 1)]


def test_a_kind_shows_the_message_that_most_of_its_rows_have() -> None:
    assert counted([lost("one"), lost("two"), lost("two")]).most_frequent(5) == [("worker_lost", "two", 3)]


def test_no_more_kinds_than_asked_for_are_given() -> None:
    found = counted(answered(400 + n, None) for n in range(10))
    assert (found.rows, len(found.most_frequent(3))) == (10, 3)


def test_an_answer_of_any_shape_is_counted_by_its_status() -> None:
    for body in (None, [], "text", 7, {"error": None}, {"error": "text"}, {"detail": "x"}, {"error": {"message": {}}}):
        assert failed_row(answered(502, body)).kind == "502"


def test_what_this_process_cannot_read_is_counted_too() -> None:
    deep = line(Reply(status=400, body=b"[" * 100_000 + b"]" * 100_000))
    assert counted([deep]).most_frequent(5) == [("unreadable", "", 1)]


def test_what_is_held_does_not_grow_with_kinds_and_messages() -> None:
    kinds = counted(answered(400, {"error": {"code": f"code-{n}"}}) for n in range(3 * MAX_KINDS))
    assert kinds.rows == 3 * MAX_KINDS
    found = kinds.most_frequent(10 * MAX_KINDS)
    assert len(found) == MAX_KINDS + 1
    assert found[0] == ("other", "", 2 * MAX_KINDS)
    messages = counted([lost("same"), lost("same"), *(lost(f"row {n}") for n in range(3 * MAX_MESSAGES))])
    assert messages.most_frequent(1) == [("worker_lost", "same", 3 * MAX_MESSAGES + 2)]
    assert len(messages._messages["worker_lost"]) == MAX_MESSAGES


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("400 invalid_request_error too_long", True),
        ("400", True),
        ("too_long", True),
        ("invalid_request_error", True),
        ("40", False),
        ("invalid", False),
        ("", False),
    ],
)
def test_a_kind_is_meant_by_all_of_it_or_by_one_of_its_words(code: str, meant: bool) -> None:
    assert matches("400 invalid_request_error too_long", {"429", code}) is meant
