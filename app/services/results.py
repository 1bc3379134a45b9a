"""A batch's results in one stream: while it runs in the order stored, after its end one file in input order (R-22)."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO

from sqlmodel import Session

from app.blobs.checked import as_file
from app.blobs.store import BlobDamaged, BlobMissing
from app.db import files as files_sql
from app.db import jobs as jobs_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Segment
from app.domain.batches import ENDED, BatchState
from app.domain.errors import Conflict, NotFound
from app.domain.outputs import line_start
from app.services import cursors, files
from app.services import segments as segments_service
from app.services.context import Caller, Yard
from app.services.files import Content
from app.services.own_batch import own_batch
from app.services.shard_lines import damaged_lines, stored_lines

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

    Raises NotFound, BadRequest for a cursor that is none, BlobMissing, and Conflict for a batch whose validation failed
    or one of whose files is damaged. `lines` raises BlobDamaged before a line that is not what was written.
    """
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        has_ended = batch.state in ENDED
        contents = _contents(session, yard, batch) if has_ended else []
        cursor = cursors.parse(None if has_ended else after)
        segments = [] if has_ended else segments_sql.stored_after(session, batch_id, cursor, SEGMENTS)
        jobs = jobs_sql.by_ids(session, {segment.job_id for segment in segments})
        source = input_blob(session, batch_id)
    if has_ended:
        return Results(_whole(yard, batch, contents), None)
    end = segments[-1].id if segments else cursor
    lines = (line for each in segments for line in _stored(yard, batch, jobs[each.job_id], each, source))
    return Results(lines, str(end))


def _contents(session: Session, yard: Yard, batch: Batch) -> list[Content]:
    """Give the contents of a batch's files.

    Raises NotFound when one of them was deleted or has expired, and Conflict when one was found damaged.
    """
    contents = []
    for file_id in (batch.output_file_id, batch.error_file_id):
        if file_id is None:
            continue
        found = files_sql.content(session, file_id, org_id=batch.org_id, now=yard.store.now(session))
        if found is None:
            raise NotFound(f"The file '{file_id}' of this batch was deleted or has expired.", code="file_gone")
        contents.append(files.readable(*found))
    return contents


def _whole(yard: Yard, batch: Batch, contents: Sequence[Content]) -> Iterator[bytes]:
    """Read the beginnings now: a content that is gone, or damaged there, is an error and no answer that is cut off."""
    if batch.state == BatchState.FAILED and batch.validated_at is None:
        raise Conflict(
            f"Batch '{batch.id}' failed its validation and has no results; its `errors` say why.", code="batch_failed"
        )
    if batch.validated_at is None:
        return iter(())
    for content in contents:
        files.check_size(yard, content, content.recorded.bytes)
    sources = [as_file(files.pieces(yard, content, 0, content.recorded.bytes)) for content in contents]
    return _merged(batch, sources)


def _merged(batch: Batch, sources: Sequence[BinaryIO]) -> Iterator[bytes]:
    """Merge the output and the error file, each in input order, by the ids that follow from the row."""
    with ExitStack() as stack:
        for source in sources:
            stack.enter_context(source)
        heads = [source.readline() for source in sources]
        for row in range(batch.total):
            start = line_start(batch.id, row)
            place = next((n for n, head in enumerate(heads) if head.startswith(start)), None)
            if place is None:
                raise LookupError(f"row {row} of {batch.id} is in neither of its files")
            yield heads[place]
            heads[place] = sources[place].readline()


def _stored(yard: Yard, batch: Batch, job: Job, segment: Segment, source: str) -> Iterator[bytes]:
    """Give the lines of a segment; rows whose answer is damaged or gone have a line that says so."""
    try:
        content = segments_service.read(yard, segment)
    except (BlobDamaged, BlobMissing):
        yield from damaged_lines(yard, batch, job, segment, source)
        return
    for _, _, start, end in stored_lines(content):
        yield content[start : end + 1]
