"""Why rows failed, read back from their lines in an output or error file and counted (B-11)."""

import json
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from app.domain.first_rows import kind_of, said
from app.domain.rows import Reply, RowError, RowErrorCode

UNREADABLE = "unreadable"
"""Stands for a line of an answer that is nested deeper than this process reads."""
OTHER = "other"
"""Stands for the kinds of a batch with more of them than are counted apart."""
MAX_KINDS = 100
SHOWN_KINDS = 20
"""So many are kept of a batch, and told of one that runs."""
MAX_MESSAGES = 100
"""So many different messages of a kind are counted; the most frequent one is nearly always among the first."""


class FailedRow(NamedTuple):
    """One failed row. `kind` is as app.domain.first_rows names it; `message` is what the row was told."""

    custom_id: str | None
    kind: str
    message: str


class Failure(NamedTuple):
    """`message` is what most rows of that kind were told."""

    kind: str
    message: str
    rows: int


class Failures:
    """Counts failed rows by kind, in memory that does not grow with them."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._messages: dict[str, Counter[str]] = {}

    @property
    def rows(self) -> int:
        """How many were counted."""
        return self._rows.total()

    def add(self, row: FailedRow) -> None:
        """Count one more."""
        kind, message = row.kind, row.message
        if kind not in self._messages and len(self._messages) >= MAX_KINDS:
            kind, message = OTHER, ""
        self._rows[kind] += 1
        messages = self._messages.setdefault(kind, Counter())
        if message in messages or len(messages) < MAX_MESSAGES:
            messages[message] += 1

    def most_frequent(self, limit: int) -> list[Failure]:
        """Return the `limit` most frequent kinds, most frequent first."""
        return [
            Failure(kind, self._messages[kind].most_common(1)[0][0], count)
            for kind, count in self._rows.most_common(limit)
        ]


def failed_row(line: bytes) -> FailedRow:
    """Read the line of a failed row."""
    try:
        found = json.loads(line)
        if (error := found["error"]) is not None:
            reply = Reply(error=RowError(RowErrorCode(error["code"]), error["message"]))
        else:
            status, body = found["response"]["status_code"], found["response"]["body"]
            error = body.get("error") if isinstance(body, dict) else None  # all that is looked at: bodies may be large
            reply = Reply(status=status, body=json.dumps({"error": error}).encode())
    except (ValueError, RecursionError):
        return FailedRow(None, UNREADABLE, "")
    return FailedRow(found["custom_id"], kind_of(reply), said(reply))


def matches(kind: str, codes: Collection[str]) -> bool:
    """Whether a kind of failure is meant by one of `codes`: the whole kind, or its status, type or code alone."""
    return kind in codes or any(word in codes for word in kind.split())
