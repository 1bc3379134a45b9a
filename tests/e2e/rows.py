"""Input files whose rows carry a mark each, and what must be true of a batch that has ended."""

import json
from collections.abc import Iterable
from typing import Any

from app.domain.outputs import output_line
from app.domain.rows import Reply
from tests.e2e.submitted import Submitted
from tests.fakes.runtime_server import Server, options_parser

CHAT = "/v1/chat/completions"


def mark(prefix: str, number: int) -> str:
    return f"[[{prefix}-{number}]]"


def row(prefix: str, number: int, orders: str = "", **body: Any) -> dict[str, Any]:
    """A row whose answer must carry its mark; `orders` are the mock engine's, for this row."""
    asked = {"model": "mock", "messages": [{"role": "user", "content": mark(prefix, number)}]}
    if orders:
        asked["user"] = orders
    return {"custom_id": f"{prefix}-{number}", "method": "POST", "url": CHAT, "body": asked | body}


def lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(found) + "\n" for found in rows).encode()


def marked(prefix: str, count: int, orders: str = "") -> bytes:
    """`count` rows that differ in their number only."""
    return lines(row(prefix, number, orders) for number in range(count))


def custom_ids(found: Iterable[dict[str, Any]]) -> list[str]:
    return [line["custom_id"] for line in found]


def known(prefix: str, number: int) -> dict[str, Any]:
    """A row whose whole answer is known beforehand (`right_lines`): the engine sends an id of the request, too."""
    return row(prefix, number, f"header=x-request-id: {prefix}-{number}")


def right_lines(batch_id: str, prefix: str, count: int) -> list[bytes]:
    """The output lines of rows that are `known`, as the mock engine answers them, byte for byte."""
    engine = Server(options_parser().parse_args([]))
    found = []
    for number in range(count):
        body = json.dumps(known(prefix, number)["body"]).encode()
        answer = engine.completion(CHAT, 0, mark(prefix, number), body)
        reply = Reply(status=200, body=answer.body, request_id=f"{prefix}-{number}")
        found.append(output_line(batch_id, number, f"{prefix}-{number}", reply))
    return found


def carries_its_own_mark(line: dict[str, Any]) -> bool:
    text = line["response"]["body"]["choices"][0]["message"]["content"]
    return bool(text == f"answer [[{line['custom_id']}]]")


def assert_each_row_once(batch: Submitted, prefix: str, count: int) -> None:
    """All of a batch completed: every body its own row's, each id once, in order, counts as many as lines."""
    ended = batch.now()
    assert ended.status == "completed", ended
    output = batch.output()
    assert [line["custom_id"] for line in output if not carries_its_own_mark(line)] == []
    assert custom_ids(output) == [f"{prefix}-{number}" for number in range(count)]
    assert ended.error_file_id is None, batch.errors()[:3]
    assert counts(batch) == (count, count, 0)


def assert_books_balance(batch: Submitted, prefix: str, count: int) -> None:
    """What holds for any batch that ran and ended: each id once over both files, counts equal to lines."""
    output, errors = batch.output(), batch.errors()
    assert sorted(custom_ids(output) + custom_ids(errors)) == sorted(f"{prefix}-{number}" for number in range(count))
    assert [line for line in output if not carries_its_own_mark(line)] == []
    assert all((line["response"] is None) != (line["error"] is None) for line in output + errors)
    total, completed, failed = counts(batch)
    assert (total, completed) == (count, len(output))
    # OpenAI counts rows that a cancel or the window's end kept from running as neither (OPENAI_CONTRACT 1.6).
    assert failed == len([line for line in errors if not ran_out(line)])
    assert custom_ids(batch.results()) == [f"{prefix}-{number}" for number in range(count)]


def ran_out(line: dict[str, Any]) -> bool:
    return line["error"] is not None and line["error"]["code"] in {"batch_cancelled", "batch_expired", "batch_stopped"}


def counts(batch: Submitted) -> tuple[int, int, int]:
    """Total, completed, failed."""
    found = batch.now().request_counts
    assert found is not None
    return found.total, found.completed, found.failed
