"""Claiming, releasing and failing a job on the wire (PROTOCOL 2, 6).

POST /workers/claim             ClaimRequest  -> ClaimAnswer
POST /workers/start-row         RowStart      -> RowStartAnswer
POST /workers/release           ReleaseRequest -> EndAnswer
POST /workers/report-failure    FailureReport  -> EndAnswer
"""

from enum import StrEnum

from pydantic import Field

from app.domain.eligibility import No
from app.domain.rows import RowErrorCode
from app.schemas.wire import Count, LeaseId, Name, Wire
from app.schemas.workers import Opaque


class ClaimRequest(Wire):
    """Ask for shards. `request_id` is fresh for each try and kept across retries of one HTTP call.

    With `started` the worker already runs `batch_id` and is answered shards of it or a *no* (`yield`: work that should
    go first waits). Without, the batch that rang is only a hint: the answer may be the pool's better batch.
    """

    worker_id: Name
    boot_id: Opaque
    request_id: Opaque
    batch_id: Name | None = None
    started: bool = False
    want_rows: int = Field(default=1, ge=1, le=1_000_000)


class RejectedRow(Wire):
    """A row that is answered without being run: refused by validation (R-23), or one that ended its worker (R-04)."""

    row: int
    code: RowErrorCode
    message: str


class Grant(Wire):
    """One shard, leased. `start` and `end` are byte offsets of the input file, `done` is a RowSet's text form.

    `parameters` are what some of its rows ask for that not every runtime takes; with none no row needs a look.
    `row_by_row`: one row at a time, each named by a `RowStart` before it starts and handed in before the next.
    `input_sum`: the checksum of that range (app.checksums), which rows are only run of bytes that match; None: unknown.
    `content`: the text of that range where it is short, so that nobody has to fetch it; None: to be fetched.
    """

    lease_id: LeaseId
    job_id: int
    number: int
    first_row: int
    rows: int
    start: int
    end: int
    input_sum: str | None = None
    done: str = ""
    rejected: list[RejectedRow] = Field(default_factory=list)
    parameters: list[str] = Field(default_factory=list)
    row_by_row: bool = False
    content: str | None = None


class BatchBrief(Wire):
    """What a worker needs to know of the batch whose shards it holds.

    `drop_parameters`: what no runtime of the worker takes is left out of a row's body, and its answer says so.
    `left_out` is left out of every row, because it reaches across requests; the row's answer says so.
    `canary_rows`: run so many rows first, until one is completed; 0 once the batch is known to run.
    """

    id: str
    endpoint: str
    input_path: str
    priority: int
    created_at: int
    drop_parameters: bool = False
    left_out: list[str] = Field(default_factory=list)
    canary_rows: int = Field(default=0, ge=0)


class ClaimAnswer(Wire):
    """Grants of one batch, or a typed *no*. `work` says that the pool has something else this worker may take."""

    no: No | None = None
    batch: BatchBrief | None = None
    grants: list[Grant] = Field(default_factory=list)
    work: bool = False


class RowStart(Wire):
    """Name a row that is to start (PROTOCOL 5). It may be sent again, to the letter.

    Each row of a cautious shard is named, and the first row of a shard that a heartbeat called unstarted.
    """

    worker_id: Name
    boot_id: Opaque
    lease_id: LeaseId
    row: Count


class RowStartVerdict(StrEnum):
    """Whether the row may start: `start`, or what a heartbeat would say of the lease."""

    START = "start"
    STOP = "stop"
    STALE = "stale"


class RowStartAnswer(Wire):
    """Sent after the commit that holds the row's number."""

    verdict: RowStartVerdict


class ReleaseRequest(Wire):
    """Hand leases back: neither an attempt nor a loss (a drain, a runtime that is down).

    `unstarted`: the worker could not start them, which counts against it.
    """

    worker_id: Name
    leases: list[LeaseId] = Field(min_length=1, max_length=10_000)
    reason: str = Field(default="", max_length=200)
    unstarted: bool = False


class FailureReport(Wire):
    """A shard could not be run for a reason that is not a row's own; counts as an attempt (A-08)."""

    worker_id: Name
    lease_id: LeaseId
    request_id: Opaque
    code: RowErrorCode = RowErrorCode.INTERNAL_ERROR
    error: str = Field(max_length=2000)


class EndAnswer(Wire):
    """What became of leases that the worker ended: `ended`, or `stale` when they were no longer its own."""

    leases: dict[int, str]
    work: bool = False
