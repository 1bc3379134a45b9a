"""The lines of one shard of a batch that has no work out any more, and what was found damaged on the way.

Memory is the shard's offsets, and its bytes while they are few.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from app.blobs.store import BlobDamaged, BlobMissing
from app.checksums import checksum
from app.db.tables import Batch, Job, Segment
from app.domain.batches import Outcome
from app.domain.jobs import JobState
from app.domain.outputs import output_line
from app.domain.rows import Reply, RowError, RowErrorCode
from app.domain.rowsets import RowSet
from app.services import segments as segments_service
from app.services.context import Yard
from app.services.custom_ids import custom_ids
from app.services.moves import outcome_of

KEEP_BYTES = 8 * 1024 * 1024
"""A shard whose segments are larger together is read row by row; one that is smaller is there thrice for a moment."""

RESULT_DAMAGED = RowError(
    RowErrorCode.RESULT_DAMAGED,
    "The stored result of this request is damaged or gone. Send the request again in another batch.",
)
INPUT_DAMAGED = RowError(
    RowErrorCode.INPUT_DAMAGED,
    "The stored input of this request is damaged or gone, so it was not answered. Upload the file again.",
)
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
_NOT_RUN = frozenset(reason.code for reason in _STOPPED.values())
"""Rows that end with one of these are in the error file, and not counted as failed."""


class ResultLines(NamedTuple):
    """Lines of the output file (`completed`) or of the error file, without newlines, in the order of that file."""

    completed: bool
    lines: list[bytes]


class Count(NamedTuple):
    """How many rows were answered, and how many failed."""

    completed: int
    failed: int


@dataclass(slots=True)
class Findings:
    """What a walk through a batch's lines has found.

    `missing_ok`: a content that is missing costs its rows; else the walk ends with BlobMissing, to be tried again.
    `failed_inputs` are rows whose shard had failed for its input before. `recounted` has the shards, by the job's id,
    whose lines are not what their job counts.
    """

    missing_ok: bool = False
    recounted: dict[int, Count] = field(default_factory=dict)
    damaged_results: list[int] = field(default_factory=list)
    damaged_inputs: list[int] = field(default_factory=list)
    failed_inputs: list[int] = field(default_factory=list)
    segments: set[int] = field(default_factory=set)
    not_run: int = 0


class _Place(NamedTuple):
    """Where a stored line lies: its segment's position in the shard, and the bytes within that segment."""

    segment: int
    start: int
    end: int
    completed: bool
    sum: str


def stored_lines(content: bytes) -> Iterator[tuple[int, bool, int, int]]:
    r"""Give (row, completed, start, end) of each `<row>\t<c|f>\t<line>\n` of a segment that was checked when stored."""
    position = 0
    while position < len(content):
        end = content.index(b"\n", position)
        flag = content.index(b"\t", position)
        yield int(content[position:flag]), content[flag + 1 : flag + 2] == b"c", flag + 3, end
        position = end + 1


def damaged_lines(yard: Yard, batch: Batch, job: Job, segment: Segment, source: str) -> Iterator[bytes]:
    """Write the lines, with their newline, of a segment's rows whose answers are damaged or gone."""
    rows = RowSet.parse(segment.rows)
    ids = custom_ids(yard, batch, job, source, set(rows), missing_ok=True) or {}
    for row in rows:
        yield output_line(batch.id, row, ids.get(row), Reply(error=RESULT_DAMAGED)) + b"\n"


class ShardLines:
    """Reads one shard. `source` is the blob of the batch's input."""

    def __init__(
        self, yard: Yard, batch: Batch, job: Job, segments: Sequence[Segment], source: str, findings: Findings
    ) -> None:
        self._yard = yard
        self._batch = batch
        self._job = job
        self._segments = segments
        self._source = source
        self._findings = findings
        self._own = (
            RowError(RowErrorCode(job.error_code), job.error_message or "")
            if job.state == JobState.FAILED and job.error_code
            else None
        )
        self._not_run = 0

    def read(self) -> Iterator[ResultLines]:
        """Give exactly one line a row, each file's in input order. Raises BlobMissing, BlobUnavailable."""
        is_small = sum(segment.length for segment in self._segments) <= KEEP_BYTES
        completed = 0
        for found in self._small() if is_small else self._large():
            completed += len(found.lines) if found.completed else 0
            yield found
        count = Count(completed, self._job.rows - completed - self._not_run)
        if count != (self._job.completed, self._job.failed):
            self._findings.recounted[self._job.id or 0] = count
        self._findings.not_run += self._not_run

    def _small(self) -> Iterator[ResultLines]:
        """Read the lines at once. It is done for each row of a batch, between its last answer and its end."""
        completed: dict[int, bytes] = {}
        failed: dict[int, bytes] = {}
        for segment in self._segments:
            for stored in self._content(segment).split(b"\n")[:-1]:
                number, flag, line = stored.split(b"\t", 2)
                (completed if flag == b"c" else failed)[int(number)] = line
        if len(completed) + len(failed) < self._job.rows:
            failed.update(self._others(self._rows() - completed.keys() - failed.keys()))
        for is_completed, lines in ((True, completed), (False, failed)):
            if lines:
                yield ResultLines(is_completed, [lines[row] for row in sorted(lines)])

    def _large(self) -> Iterator[ResultLines]:
        """Read the lines one by one, from where they lie: each is compared with its sum from when all were checked."""
        places = {row: place for n in range(len(self._segments)) for row, place in self._places(n)}
        others = self._others(self._rows() - places.keys())
        for row in range(self._job.first_row, self._job.first_row + self._job.rows):
            place = places.get(row)
            line = self._line(place) if place is not None else None
            if place is not None and line is not None:
                yield ResultLines(place.completed, [line])
            else:
                yield ResultLines(completed=False, lines=[others[row] if row in others else self._others({row})[row]])

    def _places(self, position: int) -> Iterator[tuple[int, _Place]]:
        content = self._content(self._segments[position])
        for row, completed, start, end in stored_lines(content):
            yield row, _Place(position, start, end, completed, checksum(memoryview(content)[start:end]))

    def _line(self, place: _Place) -> bytes | None:
        segment = self._segments[place.segment]
        with suppress(BlobMissing):
            line = self._yard.blobs.read(segment.blob_key, segment.start + place.start, segment.start + place.end)
            if checksum(line) == place.sum:
                return line
        if not self._findings.missing_ok:
            raise BlobMissing(f"results of rows {segment.rows} changed while they were read: blob {segment.blob_key}")
        self._findings.segments.add(segment.id or 0)
        return None

    def _content(self, segment: Segment) -> bytes:
        """Return a segment's bytes, none where they are damaged or gone."""
        try:
            return segments_service.read(self._yard, segment)
        except BlobMissing:
            if not self._findings.missing_ok:
                raise
        except BlobDamaged:
            pass
        self._findings.segments.add(segment.id or 0)
        return b""

    def _rows(self) -> set[int]:
        return set(range(self._job.first_row, self._job.first_row + self._job.rows))

    def _others(self, rows: Collection[int]) -> dict[int, bytes]:
        """Write the lines of rows whose answer is not there, with the ids of the input where that is sound."""
        if not rows:
            return {}
        ids = custom_ids(self._yard, self._batch, self._job, self._source, rows, missing_ok=self._findings.missing_ok)
        stored = set(RowSet.parse(self._job.done_rows))
        lines = {}
        for row in sorted(rows):
            reason = self._reason(has_answer=row in stored, has_input=ids is not None)
            self._note(row, reason.code)
            lines[row] = output_line(self._batch.id, row, ids[row] if ids else None, Reply(error=reason))
        return lines

    def _reason(self, *, has_answer: bool, has_input: bool) -> RowError:
        if has_answer:
            return RESULT_DAMAGED
        if self._own is not None and (has_input or self._own.code is RowErrorCode.INPUT_DAMAGED):
            return self._own
        if not has_input:
            return INPUT_DAMAGED
        return _STOPPED.get(outcome_of(self._batch) or Outcome.COMPLETED, _NO_RESULT)

    def _note(self, row: int, code: RowErrorCode) -> None:
        if code is RowErrorCode.RESULT_DAMAGED:
            self._findings.damaged_results.append(row)
        elif code is RowErrorCode.INPUT_DAMAGED:
            has_said = self._own is not None and self._own.code is code
            (self._findings.failed_inputs if has_said else self._findings.damaged_inputs).append(row)
        self._not_run += code in _NOT_RUN
