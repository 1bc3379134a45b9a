"""The lines of a batch put together with those of its retries: one line a row, in input order.

A retry has its rows in the order of the batch that it retries, so all are read side by side, and memory does not grow
with the rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from app.blobs.checked import Recorded
from app.blobs.store import BlobDamaged, BlobMissing
from app.db.tables import Batch
from app.domain.input_lines import CheckedLine, check_line
from app.domain.lines import read_lines
from app.domain.outputs import NO_ID, quoted, quoted_id
from app.services import damage
from app.services.context import Yard


class Line(NamedTuple):
    """A row's line with its newline, of the output file (`completed`) or of the error file."""

    completed: bool
    line: bytes


@dataclass(frozen=True, slots=True)
class Lines:
    """All lines of a batch that has ended, in input order, and where its input lies."""

    batch: Batch
    input: Recorded
    lines: Iterator[Line]


def latest(yard: Yard, own: Lines, retries: Sequence[Lines]) -> Iterator[bytes]:
    """Yield a line for each row of `own`: the latest success among all, else the latest failure. Oldest retry first."""
    others = [_known(_named(yard, each)) for each in reversed(retries)]
    heads = [next(each, None) for each in others]
    for name, line in _named(yard, own):
        lines = []
        for number, head in enumerate(heads):
            if head is not None and head[0] == name:
                lines.append(head[1])
                heads[number] = next(others[number], None)
        lines.append(line)
        yield next((each for each in lines if each.completed), lines[0]).line
    if any(heads):
        raise LookupError(f"a retry of {own.batch.id} has a row that it has not, or not in this order")


def _named(yard: Yard, lines: Lines) -> Iterator[tuple[bytes, Line]]:
    """Yield each line behind its custom_id. Where it has none, its input may be what was written again by now."""
    ids = _input_ids(yard, lines)
    for row, line in enumerate(lines.lines):
        name = quoted_id(line.line)
        if name == NO_ID:
            name = next((found for number, found in ids if number == row), NO_ID)
        yield name, line


def _known(lines: Iterator[tuple[bytes, Line]]) -> Iterator[tuple[bytes, Line]]:
    """Leave out failures of rows whose id is not known: those rows stay as they were before the retry."""
    return (found for found in lines if found[0] != NO_ID)


def _input_ids(yard: Yard, lines: Lines) -> Iterator[tuple[int, bytes]]:
    with suppress(BlobDamaged, BlobMissing):
        for row, line in enumerate(read_lines(damage.pieces(yard, lines.input), max_line_bytes=lines.input.bytes)):
            checked = check_line(line, endpoint=lines.batch.endpoint)
            yield row, quoted(checked.custom_id) if isinstance(checked, CheckedLine) else NO_ID
