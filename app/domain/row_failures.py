"""Why rows failed, read back from their lines in an output or error file and counted (B-11)."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from app.domain.first_rows import kind_of, said
from app.domain.rows import Reply, RowError, RowErrorCode

UNREADABLE = "unreadable"
"""Stands for a line of an answer that is nested deeper than this process reads."""


class Failure(NamedTuple):
    """`kind` is as app.domain.first_rows names it; `message` is what most rows of that kind were told."""

    kind: str
    message: str
    rows: int


def most_frequent(lines: Iterable[bytes], limit: int) -> tuple[int, list[Failure]]:
    """Count the lines, and give the `limit` most frequent kinds of failure among them, most frequent first."""
    rows: Counter[str] = Counter()
    messages: dict[str, Counter[str]] = {}
    for line in lines:
        kind, message = _failure(line)
        rows[kind] += 1
        messages.setdefault(kind, Counter())[message] += 1
    found = [Failure(kind, messages[kind].most_common(1)[0][0], count) for kind, count in rows.most_common(limit)]
    return rows.total(), found


def _failure(line: bytes) -> tuple[str, str]:
    try:
        found = json.loads(line)
        if (error := found["error"]) is not None:
            reply = Reply(error=RowError(RowErrorCode(error["code"]), error["message"]))
        else:
            response = found["response"]
            reply = Reply(status=response["status_code"], body=json.dumps(response["body"]).encode())
    except (ValueError, RecursionError):
        return UNREADABLE, ""
    return kind_of(reply), said(reply)
