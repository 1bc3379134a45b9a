"""A batch's results in one stream: while it runs in the order stored, after its end one file in input order (R-22)."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sqlmodel import Session

from app.db import files as files_sql
from app.db import segments as segments_sql
from app.db.tables import Batch, Segment
from app.domain.batches import ENDED, BatchState
from app.domain.errors import Conflict, NotFound
from app.domain.outputs import line_start
from app.services import cursors
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch
from app.services.result_lines import stored_lines

SEGMENTS = 64
"""Segments of one answer while a batch runs."""
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Results:
    """`lines` are JSON lines with their newline. `next_after` is the cursor of a batch that still runs, else None."""

    lines: Iterator[bytes]
    next_after: str | None

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Generator[bytes]:
        """Give the lines many at a time: to send each by itself costs several times what it costs to find it."""
        held: list[bytes] = []
        size = 0
        for line in self.lines:
            held.append(line)
            size += len(line)
            if size >= piece_bytes:
                yield b"".join(held)
                held, size = [], 0
        if held:
            yield b"".join(held)


def read(yard: Yard, caller: Caller, batch_id: str, *, after: str | None = None) -> Results:
    """Read results. After the batch's end the cursor is ignored: the file is exactly one line a row, in input order.

    Raises NotFound, BadRequest for a cursor that is none, Conflict for a batch whose validation failed, BlobMissing.
    """
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        if batch.state in ENDED:
            keys = _contents(session, yard, batch)
            for key in keys:
                yard.blobs.size(key)  # one that is gone is an error, and no answer that is cut off
            return Results(_whole(yard, batch, keys), None)
        cursor = cursors.parse(after)
        segments = segments_sql.stored_after(session, batch_id, cursor, SEGMENTS)
    end = segments[-1].id if segments else cursor
    return Results(_stored(yard, segments), str(end))


def _contents(session: Session, yard: Yard, batch: Batch) -> list[str]:
    """Give the blobs of a batch's files. Raises NotFound when one of them was deleted or has expired."""
    keys = []
    for file_id in (batch.output_file_id, batch.error_file_id):
        if file_id is None:
            continue
        found = files_sql.content(session, file_id, org_id=batch.org_id, now=yard.store.now(session))
        if found is None:
            raise NotFound(f"The file '{file_id}' of this batch was deleted or has expired.", code="file_gone")
        keys.append(found[1].key)
    return keys


def _whole(yard: Yard, batch: Batch, keys: Sequence[str]) -> Iterator[bytes]:
    if batch.state == BatchState.FAILED and batch.validated_at is None:
        raise Conflict(
            f"Batch '{batch.id}' failed its validation and has no results; its `errors` say why.", code="batch_failed"
        )
    if batch.validated_at is None:
        return iter(())
    return _merged(yard, batch, keys)


def _merged(yard: Yard, batch: Batch, keys: Sequence[str]) -> Iterator[bytes]:
    """Merge the output and the error file, each in input order, by the ids that follow from the row."""
    with ExitStack() as stack:
        files = [stack.enter_context(yard.blobs.open(key)) for key in keys]
        heads = [file.readline() for file in files]
        for row in range(batch.total):
            start = line_start(batch.id, row)
            place = next((n for n, head in enumerate(heads) if head.startswith(start)), None)
            if place is None:
                raise LookupError(f"row {row} of {batch.id} is in neither of its files")
            yield heads[place]
            heads[place] = files[place].readline()


def _stored(yard: Yard, segments: Sequence[Segment]) -> Iterator[bytes]:
    for segment in segments:
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
        for _, _, start, end in stored_lines(content):
            yield content[start : end + 1]
