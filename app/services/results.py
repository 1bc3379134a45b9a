"""A batch's results in one stream: while it runs in the order stored, after its end one file in input order (R-22)."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO

from sqlmodel import Session

from app.blobs.checked import Recorded, as_file
from app.blobs.store import BlobDamaged, BlobMissing
from app.db import batches as batches_sql
from app.db import jobs as jobs_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Segment
from app.domain.batches import ENDED, BatchState
from app.domain.errors import Conflict
from app.domain.outputs import line_start
from app.schemas.handins import output_lines
from app.services import blobs, cursors, files
from app.services import segments as segments_service
from app.services.context import Caller, Yard
from app.services.files import Content
from app.services.merging import Line, Lines, latest
from app.services.own_batch import own_batch
from app.services.shard_lines import damaged_lines

SEGMENTS = 64
"""Segments of one answer while a batch runs."""
MAX_RETRIES = 20
"""So many batches are read side by side at most, each by a few megabytes at a time."""
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Results:
    """`lines` are JSON lines with their newline. `next_after` is the cursor of a batch that still runs, else None."""

    lines: Iterator[bytes]
    next_after: str | None

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Generator[bytes]:
        """Give the lines many at a time: to send each by itself costs several times what it costs to find it."""
        return gathered(self.lines, piece_bytes)


def gathered(lines: Iterator[bytes], piece_bytes: int = PIECE_BYTES) -> Generator[bytes]:
    """Put lines together into pieces of `piece_bytes` or more."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= piece_bytes:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A batch that has ended, with its files' contents and its input's."""

    batch: Batch
    contents: Sequence[tuple[bool, Content]]
    input: Recorded


def read(yard: Yard, caller: Caller, batch_id: str, *, after: str | None = None, with_retries: bool = False) -> Results:
    """Read results. After the batch's end the cursor is ignored: the file is exactly one line a row, in input order.

    `with_retries`: of each row the latest success among the batch's own and those of its retries, else the latest
    failure. Retries that still run are left out.

    Raises NotFound, BadRequest for a cursor that is none, BlobMissing, and Conflict for a batch whose validation
    failed, one of whose files is damaged, or with too many retries. `lines` raises BlobDamaged before a line that is
    not what was written.
    """
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        has_ended = batch.state in ENDED
        wanted = _with_retries(session, batch) if has_ended and with_retries else [batch]
        ended = [_ended(session, yard, each) for each in wanted] if has_ended else []
        cursor = cursors.parse(None if has_ended else after)
        segments = [] if has_ended else segments_sql.stored_after(session, batch_id, cursor, SEGMENTS)
        jobs = jobs_sql.by_ids(session, {segment.job_id for segment in segments})
        source = input_blob(session, batch_id)
    if has_ended:
        return Results(_merged(yard, ended), None)
    end = segments[-1].id if segments else cursor
    lines = (line for each in segments for line in _stored(yard, batch, jobs[each.job_id], each, source))
    return Results(lines, str(end))


def _with_retries(session: Session, batch: Batch) -> list[Batch]:
    """Read the batch and its retries, oldest first, but for those that have no results."""
    retries = batches_sql.retries(session, batch.id, MAX_RETRIES + 1)
    if len(retries) > MAX_RETRIES:
        raise Conflict(
            f"Batch '{batch.id}' has more than {MAX_RETRIES} retries, and those of their own; so many are not put "
            "together. Read the results of each by itself.",
            code="too_many_retries",
        )
    # One that ended before its input was read has no rows, and its first retry has all that it would have had.
    found = [each for each in (batch, *retries) if each.state in ENDED and each.validated_at is not None]
    return found or [batch]


def _ended(session: Session, yard: Yard, batch: Batch) -> _Ended:
    """Find the contents of a batch.

    Raises NotFound when one of its files was deleted or has expired, and Conflict when one was found damaged.
    """
    now = yard.store.now(session)
    contents = [
        (completed, files.readable(*files.of_batch(session, batch, file_id, now)))
        for completed, file_id in ((True, batch.output_file_id), (False, batch.error_file_id))
        if file_id is not None
    ]
    return _Ended(batch, contents, blobs.recorded(session, input_blob(session, batch.id)))


def _merged(yard: Yard, ended: Sequence[_Ended]) -> Iterator[bytes]:
    own, *retries = (Lines(each.batch, each.input, _whole(yard, each.batch, each.contents)) for each in ended)
    return latest(yard, own, retries) if retries else (line for _, line in own.lines)


def _whole(yard: Yard, batch: Batch, contents: Sequence[tuple[bool, Content]]) -> Iterator[Line]:
    """Read the beginnings now: a content that is gone, or damaged there, is an error and no answer that is cut off."""
    if batch.state == BatchState.FAILED and batch.validated_at is None:
        raise Conflict(
            f"Batch '{batch.id}' failed its validation and has no results; its `errors` say why.", code="batch_failed"
        )
    if batch.validated_at is None:
        return iter(())
    for _, content in contents:
        files.check_size(yard, content, content.recorded.bytes)
    sources = [
        (completed, as_file(files.pieces(yard, content, 0, content.recorded.bytes))) for completed, content in contents
    ]
    return _in_order(batch, sources)


def _in_order(batch: Batch, sources: Sequence[tuple[bool, BinaryIO]]) -> Iterator[Line]:
    """Put the lines of the output and the error file in input order, by the ids that follow from the row."""
    with ExitStack() as stack:
        for _, source in sources:
            stack.enter_context(source)
        heads = [source.readline() for _, source in sources]
        for row in range(batch.total):
            start = line_start(batch.id, row)
            place = next((n for n, head in enumerate(heads) if head.startswith(start)), None)
            if place is None:
                raise LookupError(f"row {row} of {batch.id} is in neither of its files")
            yield Line(sources[place][0], heads[place])
            heads[place] = sources[place][1].readline()


def _stored(yard: Yard, batch: Batch, job: Job, segment: Segment, source: str) -> Iterator[bytes]:
    """Yield the lines of a segment, a large one in parts; rows whose answer is damaged or gone have one that says so.

    However large the segment, a reader that waits holds a piece of it.
    """
    try:
        sums = segments_service.piece_sums(yard, segment)
    except (BlobDamaged, BlobMissing):
        yield from damaged_lines(yard, batch, job, segment, source)
    else:
        yield from output_lines(segments_service.pieces(yard, segment, sums))
