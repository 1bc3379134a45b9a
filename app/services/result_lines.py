"""A batch's lines in input order: what its segments hold, and a line for every row that never ran to an end.

Memory is one shard's: its offsets, and its bytes while they are few.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
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
KEEP_BYTES = 16 * 1024 * 1024
"""Segments of a shard that are larger together are read row by row. Those that are not are there twice for a moment."""

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


class ResultLine(NamedTuple):
    """One row's line of the output or the error file, without a newline."""

    row: int
    completed: bool
    line: bytes


class _Place(NamedTuple):
    """Where a stored line lies: its segment's position in the shard, and the bytes within that segment."""

    segment: int
    start: int
    end: int
    completed: bool


def result_lines(yard: Yard, batch: Batch) -> Iterator[ResultLine]:
    """Give exactly one line a row, in input order, of a batch that has no work out any more (B-11)."""
    with yard.store.read() as session:
        source = input_blob(session, batch.id)
    after = -1
    while True:
        with yard.store.read() as session:
            jobs = jobs_sql.shards(session, batch.id, after=after, limit=PAGE)
            segments = segments_sql.of_jobs(session, [job.id or 0 for job in jobs])
        for job in jobs:
            yield from _shard_lines(yard, batch, job, segments.get(job.id or 0, []), source)
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


def _shard_lines(yard: Yard, batch: Batch, job: Job, segments: Sequence[Segment], source: str) -> Iterator[ResultLine]:
    stored: Callable[[int], ResultLine | None]
    if sum(segment.length for segment in segments) <= KEEP_BYTES:
        lines = _all_lines(yard, segments)
        rows, stored = RowSet.of(lines), lines.get
    else:
        places = _places(yard, segments)
        rows, stored = RowSet.of(places), partial(_line_at, yard, segments, places)
    missing = _missing_lines(yard, batch, job, source, rows)
    for row in range(job.first_row, job.first_row + job.rows):
        line = stored(row)
        yield line if line is not None else next(missing)


def _all_lines(yard: Yard, segments: Sequence[Segment]) -> dict[int, ResultLine]:
    """Read the lines of a shard at once. It is done for each row of a batch, between its last answer and its end."""
    lines: dict[int, ResultLine] = {}
    for segment in segments:
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
        for stored in content.split(b"\n")[:-1]:
            number, flag, line = stored.split(b"\t", 2)
            row = int(number)
            lines[row] = ResultLine(row, flag == b"c", line)
    return lines


def _places(yard: Yard, segments: Sequence[Segment]) -> dict[int, _Place]:
    """Find where the lines of a large shard lie."""
    places: dict[int, _Place] = {}
    for position, segment in enumerate(segments):
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
        for row, completed, start, end in stored_lines(content):
            places[row] = _Place(position, start, end, completed)
    return places


def _line_at(yard: Yard, segments: Sequence[Segment], places: Mapping[int, _Place], row: int) -> ResultLine | None:
    place = places.get(row)
    if place is None:
        return None
    segment = segments[place.segment]
    line = yard.blobs.read(segment.blob_key, segment.start + place.start, segment.start + place.end)
    return ResultLine(row, place.completed, line)


def _missing_lines(yard: Yard, batch: Batch, job: Job, source: str, done: RowSet) -> Iterator[ResultLine]:
    """Write the lines of a shard's rows that are not stored, from the ids in the input."""
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
            yield ResultLine(row, completed=False, line=output_line(batch.id, row, custom_id, reply))


def _reason(batch: Batch, job: Job) -> RowError:
    if job.state == JobState.FAILED and job.error_code:
        return RowError(RowErrorCode(job.error_code), job.error_message or "")
    return _STOPPED.get(
        outcome_of(batch) or Outcome.COMPLETED, RowError(RowErrorCode.INTERNAL_ERROR, "This request has no result.")
    )
