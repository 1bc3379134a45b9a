"""Lines of failed rows, read back and counted."""

import json

from app.domain.outputs import output_line
from app.domain.row_failures import most_frequent
from app.domain.rows import Reply, RowError, RowErrorCode


def line(reply: Reply) -> bytes:
    return output_line("batch_1", 0, "row", reply)


def answered(status: int, body: object) -> bytes:
    return line(Reply(status=status, body=json.dumps(body).encode()))


def lost(message: str) -> bytes:
    return line(Reply(error=RowError(RowErrorCode.WORKER_LOST, message)))


def test_kinds_are_counted_and_the_most_frequent_comes_first() -> None:
    lines = [lost("gone"), answered(500, {"error": {"message": "no", "type": "server_error"}}), lost("gone")]
    rows, found = most_frequent(lines, 5)
    assert rows == 3
    assert found == [("worker_lost", "gone", 2), ("500 server_error", "no", 1)]


def test_a_kind_shows_the_message_that_most_of_its_rows_have() -> None:
    _, found = most_frequent([lost("one"), lost("two"), lost("two")], 5)
    assert found == [("worker_lost", "two", 3)]


def test_no_more_kinds_than_asked_for_are_given() -> None:
    rows, found = most_frequent([answered(400 + n, None) for n in range(10)], 3)
    assert (rows, len(found)) == (10, 3)


def test_an_answer_of_any_shape_is_counted_by_its_status() -> None:
    for body in (None, [], "text", 7, {"error": None}, {"error": "text"}, {"detail": "x"}, {"error": {"message": {}}}):
        assert most_frequent([answered(502, body)], 5)[1][0].kind == "502"


def test_what_this_process_cannot_read_is_counted_too() -> None:
    deep = line(Reply(status=400, body=b"[" * 100_000 + b"]" * 100_000))
    assert most_frequent([deep], 5) == (1, [("unreadable", "", 1)])
