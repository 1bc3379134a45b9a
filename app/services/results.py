"""A batch's results in one stream: while it runs in the order stored, after its end one file in input order (R-22)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.db import segments as segments_sql
from app.db.tables import Batch, Segment
from app.domain.batches import ENDED, BatchState
from app.domain.errors import Conflict
from app.services import cursors
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch
from app.services.result_lines import result_lines, stored_lines

SEGMENTS = 64
"""Segments of one answer while a batch runs."""


@dataclass(frozen=True, slots=True)
class Results:
    """`lines` are JSON lines with their newline. `next_after` is the cursor of a batch that still runs, else None."""

    lines: Iterator[bytes]
    next_after: str | None


def read(yard: Yard, caller: Caller, batch_id: str, *, after: str | None = None) -> Results:
    """Read results. After the batch's end the cursor is ignored: the file is exactly one line a row, in input order.

    Raises NotFound, BadRequest for a cursor that is none, Conflict for a batch whose validation failed.
    """
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        if batch.state in ENDED:
            return Results(_whole(yard, batch), None)
        cursor = cursors.parse(after)
        segments = segments_sql.stored_after(session, batch_id, cursor, SEGMENTS)
    end = segments[-1].id if segments else cursor
    return Results(_stored(yard, segments), str(end))


def _whole(yard: Yard, batch: Batch) -> Iterator[bytes]:
    if batch.state == BatchState.FAILED:
        raise Conflict(
            f"Batch '{batch.id}' failed its validation and has no results; its `errors` say why.", code="batch_failed"
        )
    if batch.validated_at is None:
        return iter(())
    return (line.line + b"\n" for line in result_lines(yard, batch))


def _stored(yard: Yard, segments: Sequence[Segment]) -> Iterator[bytes]:
    for segment in segments:
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
        for _, _, start, end in stored_lines(content):
            yield content[start : end + 1]
