"""A shard's bytes as rows to run, and the worker's own pre-check of them (B-17, B-18, B-21, R-08)."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.domain.input_lines import (
    BadLine,
    CheckedLine,
    body_of,
    check_line,
    custom_id_fault,
    model_fault,
)
from app.domain.lines import Line, read_lines
from app.domain.nesting import nests_too_deeply
from app.domain.rows import Row, RowError, RowErrorCode


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that must not run: it fails with `error`. `custom_id` is None where the line has no readable one."""

    number: int
    custom_id: str | None
    error: RowError


class _Request(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Body(msgspec.Struct):
    model: str
    stream: Any = None


_request = msgspec.json.Decoder(_Request)
_body = msgspec.json.Decoder(_Body)


def read_rows(
    chunks: Iterable[bytes],
    *,
    first_row: int,
    endpoint: str,
    offset: int = 0,
    rejected: Mapping[int, RowError] | None = None,
) -> Iterator[Row | RefusedRow]:
    """Give every row of a shard, in order, numbered from `first_row`.

    `chunks` are the bytes of the shard's range, which begins at `offset` of the file; `rejected` are the rows that the
    control plane refused for the batch. The rest of the check repeats validation, for a file that went round it: a row
    that breaks a rule fails with INVALID_JSON, a custom_id that stood before in this shard with DUPLICATE_CUSTOM_ID.
    Ids of other shards are not compared: a worker may be given the same shard twice.
    """
    rejected = rejected or {}
    seen: set[str] = set()
    # No cap on a line: the range is as long as the server made it, and one row larger than a shard is a range too.
    for number, line in enumerate(read_lines(chunks, max_line_bytes=sys.maxsize, offset=offset), first_row):
        row = _fast(number, line, endpoint) or _slow(number, line, endpoint)
        if row.custom_id is not None and row.custom_id in seen:
            error = RowError(RowErrorCode.DUPLICATE_CUSTOM_ID, "An earlier row of the batch has the same custom_id.")
            yield RefusedRow(number, row.custom_id, error)
        elif number in rejected:
            yield RefusedRow(number, row.custom_id, rejected[number])
        else:
            yield row
        if row.custom_id is not None:
            seen.add(row.custom_id)


def _fast(number: int, line: Line, endpoint: str) -> Row | None:
    """Read a row that is in order; None when anything about it needs a closer look."""
    content = line.content or b""
    if nests_too_deeply(content):
        return None
    try:
        if not content.isascii():
            content.decode()
        request = _request.decode(content)
        body = _body.decode(request.body)
    except (ValueError, RecursionError):
        return None
    if body.stream or request.url != endpoint or request.method != "POST":
        return None
    if custom_id_fault(request.custom_id) or model_fault(body.model):
        return None
    return Row(number, request.custom_id, endpoint, body.model, bytes(request.body))


def _slow(number: int, line: Line, endpoint: str) -> Row | RefusedRow:
    """Judge a row by the very rules of validation, which accept a little that msgspec does not."""
    checked = check_line(line, endpoint=endpoint)
    content = line.content or b""
    if isinstance(checked, BadLine):
        message = " ".join(error.message for error in checked.errors)
        return RefusedRow(number, checked.custom_id, RowError(RowErrorCode.INVALID_JSON, message))
    return _judged(number, checked, content, endpoint)


def _judged(number: int, checked: CheckedLine, content: bytes, endpoint: str) -> Row | RefusedRow:
    if checked.rejected:
        return RefusedRow(number, checked.custom_id, checked.rejected)
    return Row(number, checked.custom_id, endpoint, checked.model, body_of(content))
