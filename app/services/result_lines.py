"""A batch's lines in input order: what its segments hold, and a line for every row that never ran to an end.

Memory is one shard's: its offsets, and its bytes while they are few.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.db import jobs as jobs_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Segment
from app.domain.batches import Outcome
from app.domain.input_lines import CheckedLine, check_line
from app.domain.jobs import JobState
from app.domain.lines import read_lines
from app.domain.outputs import output_line
from app.domain.rows import Reply, RowError, RowErrorCode
from app.domain.rowsets import RowSet
from app.services.context import Yard
from app.services.moves import outcome_of

PAGE = 100
CHUNK = 1024 * 1024
KEEP_BYTES = 8 * 1024 * 1024
"""A shard whose segments are larger together is read row by row; one that is smaller is there thrice for a moment."""

_NO_RESULT = RowError(RowErrorCode.INTERNAL_ERROR, "This request has no result.")
_STOPPED = {
    Outcome.CANCELLED: RowError(
        RowErrorCode.BATCH_CANCELLED, "This request was not executed before its batch was cancelled."
    ),
    Outcome.EXPIRED: RowError(
        RowErrorCode.BATCH_EXPIRED, "This request could not be executed before the completion window expired."
    ),
    Outcome.FAILED: RowError(
        RowErrorCode.BATCH_STOPPED, "This request was not executed: the first rows of its batch all failed alike."
    ),
}


class ResultLines(NamedTuple):
    """Lines of the output file (`completed`) or of the error file, without newlines, in the order of that file."""

    completed: bool
    lines: list[bytes]


class _Place(NamedTuple):
    """Where a stored line lies: its segment's position in the shard, and the bytes within that segment."""

    segment: int
    start: int
    end: int
    completed: bool


def result_lines(yard: Yard, batch: Batch) -> Iterator[ResultLines]:
    """Give exactly one line a row, each file's in input order, of a batch that has no work out any more (B-11)."""
    with yard.store.read() as session:
        source = input_blob(session, batch.id)
    after = -1
    while True:
        with yard.store.read() as session:
            jobs = jobs_sql.shards(session, batch.id, after=after, limit=PAGE)
            segments = segments_sql.of_jobs(session, [job.id or 0 for job in jobs])
        for job in jobs:
            own = segments.get(job.id or 0, [])
            is_small = sum(segment.length for segment in own) <= KEEP_BYTES
            yield from (_small_shard if is_small else _large_shard)(yard, batch, job, own, source)
        if len(jobs) < PAGE:
            return
        after = jobs[-1].number


def stored_lines(content: bytes) -> Iterator[tuple[int, bool, int, int]]:
    r"""Give (row, completed, start, end) of each `<row>\t<c|f>\t<line>\n` of a segment that was checked when stored."""
    position = 0
    while position < len(content):
        end = content.index(b"\n", position)
        flag = content.index(b"\t", position)
        yield int(content[position:flag]), content[flag + 1 : flag + 2] == b"c", flag + 3, end
        position = end + 1


def _small_shard(yard: Yard, batch: Batch, job: Job, segments: Sequence[Segment], source: str) -> Iterator[ResultLines]:
    """Read the lines of a shard at once. It is done for each row of a batch, between its last answer and its end."""
    completed: dict[int, bytes] = {}
    failed: dict[int, bytes] = {}
    for segment in segments:
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
        for stored in content.split(b"\n")[:-1]:
            number, flag, line = stored.split(b"\t", 2)
            (completed if flag == b"c" else failed)[int(number)] = line
    if len(completed) + len(failed) < job.rows:
        failed.update(_missing_lines(yard, batch, job, source, RowSet.of([*completed, *failed])))
    for is_completed, lines in ((True, completed), (False, failed)):
        if lines:
            yield ResultLines(is_completed, [lines[row] for row in sorted(lines)])


def _large_shard(yard: Yard, batch: Batch, job: Job, segments: Sequence[Segment], source: str) -> Iterator[ResultLines]:
    """Read the lines of a shard one by one, from where they lie."""
    places = _places(yard, segments)
    missing = _missing_lines(yard, batch, job, source, RowSet.of(places))
    for row in range(job.first_row, job.first_row + job.rows):
        if (place := places.get(row)) is None:
            yield ResultLines(completed=False, lines=[next(missing)[1]])
        else:
            segment = segments[place.segment]
            line = yard.blobs.read(segment.blob_key, segment.start + place.start, segment.start + place.end)
            yield ResultLines(place.completed, [line])


def _places(yard: Yard, segments: Sequence[Segment]) -> dict[int, _Place]:
    """Find where the lines of a large shard lie."""
    places: dict[int, _Place] = {}
    for position, segment in enumerate(segments):
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
        for row, completed, start, end in stored_lines(content):
            places[row] = _Place(position, start, end, completed)
    return places


def _missing_lines(yard: Yard, batch: Batch, job: Job, source: str, done: RowSet) -> Iterator[tuple[int, bytes]]:
    """Write the lines of a shard's rows that are not stored, from the ids in the input; each with its row's number."""
    if len(done) == job.rows:
        return
    reply = Reply(error=_reason(batch, job))
    with yard.blobs.open(source, job.start, job.end) as stream:
        chunks = iter(lambda: stream.read(CHUNK), b"")
        lines = read_lines(chunks, max_line_bytes=yard.limits.max_line_bytes, offset=job.start)
        for row, line in enumerate(lines, job.first_row):
            if row in done:
                continue
            checked = check_line(line, endpoint=batch.endpoint)
            custom_id = checked.custom_id if isinstance(checked, CheckedLine) else None
            yield row, output_line(batch.id, row, custom_id, reply)


def _reason(batch: Batch, job: Job) -> RowError:
    if job.state == JobState.FAILED and job.error_code:
        return RowError(RowErrorCode(job.error_code), job.error_message or "")
    return _STOPPED.get(outcome_of(batch) or Outcome.COMPLETED, _NO_RESULT)
