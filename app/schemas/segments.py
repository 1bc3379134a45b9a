"""Handing in finished rows, and ending shards with the last of them (PROTOCOL 5).

    POST /workers/results           one hand-in: the header and its bytes -> HandInAnswer
    POST /workers/upload-results    the same, whose header also ends leases

A hand-in covers all shards of one batch on a worker. Its request body is one line of JSON (`HandInHeader`), a newline,
and then the parts' bytes one after the other; each part is a run of stored lines (app.schemas.handins).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from app.domain.first_rows import MAX_KIND, MAX_MESSAGE
from app.schemas.wire import Count, Figure, LeaseId, Name, UsageCounts, Wire
from app.schemas.workers import Opaque

RowSetText = Annotated[str, StringConstraints(pattern=r"^(\d+(-\d+)?(,\d+(-\d+)?)*)?$", max_length=32_000)]
"""Of the longest shard, 4,096 rows, each third of them missing: 1,366 ranges of two row numbers with ten digits."""

MAX_BYTES = 256 * 2**20
"""The whole body of a hand-in has at most so many."""
MAX_LEASES = 1_000
"""Shards that one hand-in may name. A worker that holds more hands them in by several."""


class Part(Wire):
    """One shard's share of a hand-in. `seq` counts a lease's parts from 1 and is kept when the part is sent again.

    `off_format` and `other_model` count completed rows (executors.answered_otherwise); an older worker counts none.
    """

    lease_id: LeaseId
    seq: int = Field(ge=1, le=2**31 - 1)
    rows: RowSetText
    completed: Count
    failed: Count
    usage: UsageCounts = UsageCounts()
    off_format: Count = 0
    other_model: Count = 0
    length: int = Field(ge=0, le=MAX_BYTES)


class End(Wire):
    """The end of a shard: all of its rows are stored, with this hand-in or before it (A-07)."""

    lease_id: LeaseId
    request_id: Opaque


class FirstRows(Wire):
    """What came of the first rows of a batch on a worker, none of which was completed.

    `kind` says how all of them failed (app.domain.first_rows.kind_of); None: they do not look alike. `row` and
    `message` are the first one's.
    """

    kind: str | None = Field(max_length=MAX_KIND)
    rows: int = Field(ge=1, le=2**31 - 1)
    row: Count
    message: str = Field(default="", max_length=MAX_MESSAGE)


class HandInHeader(Wire):
    """The first line of a hand-in."""

    worker_id: Name
    batch_id: Name
    parts: list[Part] = Field(default_factory=list, max_length=MAX_LEASES)
    ends: list[End] = Field(default_factory=list, max_length=MAX_LEASES)
    first_rows: FirstRows | None = None


class PartVerdict(StrEnum):
    """What became of one part."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    STALE = "stale"


class EndVerdict(StrEnum):
    """What became of one end. `incomplete`: rows are missing, the lease is still held; hand them in and end again."""

    ENDED = "ended"
    INCOMPLETE = "incomplete"
    STALE = "stale"


class HandInAnswer(Wire):
    """One verdict a lease for its part, and one for its end. `stop` lists leases whose batch was told to stop.

    `goes_on` answers `first_rows`: the batch runs whatever they brought. With neither of both the worker says it again.
    `next_segment_seconds`: when its next hand-in of this batch is due; None: as often as its welcome said.
    """

    parts: dict[int, PartVerdict] = Field(default_factory=dict)
    ends: dict[int, EndVerdict] = Field(default_factory=dict)
    stop: list[int] = Field(default_factory=list)
    goes_on: bool = False
    next_segment_seconds: float | None = None
    work: bool = False


class Progress(Wire):
    """Live counts of rows finished and not handed in yet, for people only (R-32, A-05)."""

    worker_id: Name
    batch_id: Name
    completed: Count
    failed: Count
    rows_per_second: Figure | None = None
