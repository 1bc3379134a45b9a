"""Every table. Ids that users see are strings; ids that only count are integers that are never used twice.

Deleting is rare and explicit; foreign keys are enforced on both databases. Row bodies never enter SQL.
"""

from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, UniqueConstraint, false, text
from sqlmodel import Field, SQLModel

from app.db.shapes import STRICT, Count, LiveCounts, Need, Reason, Refusal, TopReason
from app.db.types import AnyText, BigId, Json, UtcMs, unreadable
from app.domain.batches import BatchState
from app.domain.jobs import JobKind, JobState
from app.domain.leases import LeaseState
from app.domain.retention import Kept
from app.domain.workers import Activity, Phase, Transport, WorkerState

_COUNTS_UP = {"sqlite_autoincrement": True}


def _key() -> Any:
    """Build a key that counts up and never comes again (PROTOCOL 1)."""
    return Field(default=None, sa_column=Column(BigId, primary_key=True, autoincrement=True))


def _at(*, nullable: bool = True, index: bool = False) -> Any:
    """Build a time column."""
    return Field(default=None, sa_column=Column(UtcMs, nullable=nullable, index=index))


def _json(default: str) -> Any:
    """Build a column for a small JSON value whose default is the literal `default`."""
    shape = dict if default == "{}" else list
    return Field(default_factory=shape, sa_column=Column(Json(shape), nullable=False, server_default=default))


def _json_or_null(shape: type = dict) -> Any:
    """Build a column for a small JSON value that may be missing."""
    return Field(default=None, sa_column=Column(Json(shape, nullable=True)))


def _only(condition: str) -> dict[str, Any]:
    """Have an index hold the rows of which `condition` is true, on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def _txid() -> Any:
    """Build the column that says which transaction wrote the row, for cursors (PROTOCOL 9); 0 on SQLite."""
    return Field(default=None, sa_column=Column(BigInteger, nullable=False, server_default=text("0")))


class Org(SQLModel, table=True):
    """Who owns things. The operator org is the one whose admins run the service."""

    __tablename__ = "org"

    id: str = Field(primary_key=True)
    name: str = Field(unique=True, sa_type=AnyText)
    operator: bool = False
    files: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """Files that are not hidden, and their bytes: counted here, for nobody counts rows (app.db.orgs)."""
    file_bytes: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    created_at: datetime = _at(nullable=False)


class ApiToken(SQLModel, table=True):
    """A credential; only its SHA-256 and a prefix for people are kept (DESIGN 11)."""

    __tablename__ = "api_token"

    id: str = Field(primary_key=True)
    org_id: str = Field(foreign_key="org.id", index=True)
    name: str = Field(sa_type=AnyText)
    prefix: str
    sha256: str = Field(unique=True)
    scopes: list[str] = _json("[]")
    single_worker: bool = False
    created_at: datetime = _at(nullable=False)
    last_used_at: datetime | None = _at()
    revoked_at: datetime | None = _at()


class Pool(SQLModel, table=True):
    """A named set of like workers; its queue has its name. `org_id` null: shared by all orgs."""

    __tablename__ = "pool"

    name: str = Field(primary_key=True)
    org_id: str | None = Field(default=None, foreign_key="org.id")
    is_default: bool = False
    slots: dict[str, int] = _json("{}")
    max_load: float | None = None
    min_memory_gb: float | None = None
    max_losses: int | None = None
    timing: dict[str, Any] = _json("{}")
    heard_since: datetime | None = _at()
    """Of a pool with a timing of its own what `PresenceTick` says by the service's: the end of the last such gap."""
    created_at: datetime = _at(nullable=False)


class Blob(SQLModel, table=True):
    """Contents outside the database. `put_at` null: written, or not, by whoever made the row (PROTOCOL 5, 8)."""

    __tablename__ = "blob"
    __table_args__ = (
        Index("ix_blob_unput", "created_at", **_only("put_at IS NULL")),
        Index(
            "ix_blob_unreferenced", "unreferenced_at", **_only("unreferenced_at IS NOT NULL AND collected_at IS NULL")
        ),
    )

    key: str = Field(primary_key=True)
    org_id: str = Field(foreign_key="org.id")
    bytes: int = Field(default=0, sa_type=BigInteger)
    digest: str | None = None
    created_at: datetime = _at(nullable=False)
    put_at: datetime | None = _at()
    block_sums: str | None = None
    """Checksums of the content's blocks in hex, one after the other (app.checksums); None: it was written without."""
    damaged_at: datetime | None = _at()
    """When a read found bytes that are not those that were written; `damage` says which."""
    damage: str | None = None
    unreferenced_at: datetime | None = _at()
    collected_at: datetime | None = _at()


class ContentStore(SQLModel, table=True):
    """One row: the id of this database's store of contents. `marked_at` null: its marker is not known to be there."""

    __tablename__ = "content_store"

    id: str = Field(primary_key=True)
    created_at: datetime = _at(nullable=False)
    marked_at: datetime | None = _at()


class File(SQLModel, table=True):
    """A file on OpenAI's wire. Deleting hides it at once; its blob stays while a batch needs it (PROTOCOL 8)."""

    __tablename__ = "file"
    __table_args__ = (Index("ix_file_org", "org_id", "purpose", "seq"), _COUNTS_UP)

    seq: int | None = _key()
    id: str = Field(unique=True)
    org_id: str = Field(foreign_key="org.id")
    purpose: str
    filename: str = Field(sa_type=AnyText)
    bytes: int = Field(sa_type=BigInteger)
    blob_key: str = Field(foreign_key="blob.key", index=True)
    created_at: datetime = _at(nullable=False)
    expires_at: datetime | None = _at(index=True)
    hidden_at: datetime | None = _at()


class Batch(SQLModel, table=True):
    """A batch. `open_jobs` counts its jobs that have not ended, `live` its live leases; nobody ever counts rows.

    `requirements` maps a requirement key to `{"endpoint", "models", "parameters": {model: [name]}}`, so that
    eligibility is judged once a key. `drop_parameters`: a row runs without what its runtime does not take, and says so.
    `left_out` is left out of each row wherever it runs, because it reaches across requests.
    `kept` says what retention has left of a batch that ended; `top_errors` is what its jobs and segments said before.
    `row_errors`: why its rows failed, counted as its files were written; None: it ended before that was done.
    `retry_of`: the batch whose rows it runs again, which may be forgotten by now.
    """

    __tablename__ = "batch"
    __table_args__ = (
        Index("ix_batch_org", "org_id", "seq"),
        Index("ix_batch_order", "pool", "state", "rank", "expires_at", "seq"),
        Index("ix_batch_due", "state", "expires_at"),
        Index("ix_batch_create", "token_id", "args_digest"),
        Index("ix_batch_idempotency", "token_id", "idempotency_key", **_only("idempotency_key IS NOT NULL")),
        Index("ix_batch_kept", "kept", "ended_at"),
        Index("ix_batch_open", "org_id", **_only("ended_at IS NULL")),
        Index("ix_batch_retry", "retry_of", "seq", **_only("retry_of IS NOT NULL")),
        # What a delete of a file looks up, as it must.
        Index("ix_batch_output", "output_file_id", **_only("output_file_id IS NOT NULL")),
        Index("ix_batch_error", "error_file_id", **_only("error_file_id IS NOT NULL")),
        _COUNTS_UP,
    )

    seq: int | None = _key()
    id: str = Field(unique=True)
    org_id: str = Field(foreign_key="org.id")
    endpoint: str
    completion_window: str
    input_file_id: str = Field(foreign_key="file.id", index=True)
    pool: str = Field(foreign_key="pool.name")
    rank: int = 9
    """9 - priority: ascending like every other part of the order, so that one index serves it."""
    fair_group: str | None = Field(default=None, sa_type=AnyText)
    meta: dict[str, str] | None = _json_or_null()
    output_expires_seconds: int | None = None

    state: str = BatchState.VALIDATING
    outcome: str | None = Field(default=None)
    stop_spread_at: datetime | None = _at()
    open_jobs: int = 0
    live: int = 0
    total: int = 0
    shards: int = 0
    requirements: dict[str, Need] = _json("{}")
    drop_parameters: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))
    left_out: list[str] = _json("[]")
    canary_rows: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    """So many rows run first on each worker; 0: none do."""
    canary_over: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))
    """One of its rows was answered, or its first rows failed each in its own way: it runs to its end."""
    models: list[str] = _json("[]")
    errors: list[Reason] = _json("[]")
    error_count: int = 0
    waiting_reason: str | None = None
    """Why its control work is put off; each move of the batch clears it."""
    models_asked_at: datetime | None = _at()
    """When its pool's workers were asked to list their models again, because none of them had one of its own."""
    rung_at: datetime | None = _at()
    ring_no: int = 0

    completed: int | None = None
    failed: int | None = None
    usage: dict[str, Count] | None = _json_or_null()
    answers_off_format: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    answers_other_model: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    output_file_id: str | None = Field(default=None, foreign_key="file.id")
    error_file_id: str | None = Field(default=None, foreign_key="file.id")

    created_at: datetime = _at(nullable=False)
    expires_at: datetime = _at(nullable=False)
    validated_at: datetime | None = _at()
    in_progress_at: datetime | None = _at()
    finalizing_at: datetime | None = _at()
    completed_at: datetime | None = _at()
    failed_at: datetime | None = _at()
    expired_at: datetime | None = _at()
    cancelling_at: datetime | None = _at()
    cancelled_at: datetime | None = _at()
    ended_at: datetime | None = _at()
    kept: str = Field(default=Kept.ROWS, sa_column=Column(String, nullable=False, server_default=Kept.ROWS.value))
    top_errors: list[TopReason] | None = _json_or_null(list)
    row_errors: list[TopReason] | None = _json_or_null(list)

    token_id: str | None = Field(default=None, foreign_key="api_token.id")
    args_digest: str | None = None
    idempotency_key: str | None = Field(default=None, sa_type=AnyText)
    retry_count: int = 0
    seen: bool = False
    retry_of: str | None = None


class Job(SQLModel, table=True):
    """What is leased: a batch's shard, or control work on a batch. `done_rows` is a RowSet's text form.

    `endpoint_id`: the webhook endpoint that is to be told of the batch's end, by a job each.

    `rejected` are rows that are answered without being run: (row, code, message). A shard with `cautious_at` lost so
    many workers that it is run alone and row by row; `cautious_worker_id` makes room for it (PROTOCOL 5).
    """

    __tablename__ = "job"
    __table_args__ = (
        Index("ix_job_claim", "batch_id", "kind", "state", "number"),
        Index("ix_job_control", "kind", "state", "verb", "not_before_at"),
        Index("ix_job_endpoint", "endpoint_id", "id", **_only("endpoint_id IS NOT NULL")),
        Index("ix_job_cautious", "batch_id", **_only("cautious_at IS NOT NULL")),
        Index("ix_job_told", "ended_at", **_only("endpoint_id IS NOT NULL AND ended_at IS NOT NULL")),
        UniqueConstraint("batch_id", "kind", "verb", "number"),
        _COUNTS_UP,
    )

    id: int | None = _key()
    kind: str = JobKind.SHARD
    verb: str = ""
    batch_id: str = Field(foreign_key="batch.id")
    endpoint_id: str | None = None
    number: int = 0
    state: str = JobState.QUEUED
    requirement_key: str | None = None

    first_row: int = 0
    rows: int = 0
    start: int = Field(default=0, sa_type=BigInteger)
    end: int = Field(default=0, sa_type=BigInteger)
    input_sum: str | None = None
    """Checksum of the input's bytes `start` to `end` in hex, taken at validation; None: it was validated without."""
    rejected: list[Refusal] = _json("[]")

    done_rows: str = ""
    completed: int = 0
    failed: int = 0
    input_tokens: int = Field(default=0, sa_type=BigInteger)
    cached_tokens: int = Field(default=0, sa_type=BigInteger)
    output_tokens: int = Field(default=0, sa_type=BigInteger)
    reasoning_tokens: int = Field(default=0, sa_type=BigInteger)
    total_tokens: int = Field(default=0, sa_type=BigInteger)
    answers_off_format: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    answers_other_model: int = Field(default=0, sa_column_kwargs={"server_default": "0"})

    attempts: int = 0
    losses: int = 0
    content_tries: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    """How many tries of control work found a content missing while the store was there."""
    last_worker_id: str | None = None
    cautious_at: datetime | None = _at()
    cautious_worker_id: str | None = None
    error_code: str | None = None
    error_message: str | None = Field(default=None, sa_type=AnyText)
    not_before_at: datetime | None = _at()
    rung_at: datetime | None = _at()
    ring_no: int = 0
    created_at: datetime = _at(nullable=False)
    ended_at: datetime | None = _at()


class Worker(SQLModel, table=True):
    """The agent on one host. `offline_at` is stored by the heartbeat sweeper and cleared by a heartbeat (R-06)."""

    __tablename__ = "worker"
    __table_args__ = (
        UniqueConstraint("org_id", "name"),
        Index("ix_worker_pool", "pool", "state"),
        Index("ix_worker_seen", "state", "last_seen_at"),
        Index("ix_worker_command", "command_at"),
        Index(
            "ix_worker_idle",
            "pool",
            "last_seen_at",
            sqlite_where=text("holds IS 0"),
            postgresql_where=text("holds IS false"),
        ),
    )

    id: str = Field(primary_key=True)
    org_id: str = Field(foreign_key="org.id")
    name: str
    install_id: str
    boot_id: str
    starts: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    pool: str
    transport: str = Transport.CELERY
    state: str = WorkerState.JOINING
    phase: str | None = Phase.READY
    activity: str = Activity.IDLE
    hostname: str = Field(default="", sa_type=AnyText)
    slots: int = 1
    max_concurrent_prompts: int | None = None
    current_invocations: int = 0
    tags: list[str] = _json("[]")
    versions: dict[str, str] = _json("{}")
    runtimes: list[Any] = _json("[]")
    timing: dict[str, Any] = _json("{}")
    """The rungs that its last hello was told: a change of its pool's or the service's counts from the next hello."""
    sample: dict[str, Any] | None = _json_or_null()
    progress: LiveCounts | None = _json_or_null()
    row_by_row: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))
    """It can run a cautious shard (PROTOCOL 5)."""
    pulls: list[Any] = _json("[]")
    """Models that its runtimes fetch or fetched since its hello (app.schemas.pulls)."""
    holds: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))
    """It held a live lease when it called last: where to look for idle workers first. The leases themselves decide."""
    no_lease: str | None = None
    drain_requested_at: datetime | None = _at()
    reset_requested_at: datetime | None = _at()
    command_at: datetime | None = _at()
    """The later of both: waiting polls are woken by it."""
    look_requested_at: datetime | None = _at()
    """When it was asked to list its runtimes' models again."""
    looked_at: datetime | None = _at()
    """The last such request that it has done; null: it is of a version that knows none."""
    created_at: datetime = _at(nullable=False)
    hello_at: datetime = _at(nullable=False)
    """When this boot was taken in."""
    last_seen_at: datetime = _at(nullable=False)
    last_beat_at: datetime | None = _at()
    offline_at: datetime | None = _at()
    gone_at: datetime | None = _at()


class Lease(SQLModel, table=True):
    """One worker's right to one job; the id is the fencing token. At most one live lease a job.

    `running_row`: the row that its worker named last, and has not handed in (PROTOCOL 5).
    """

    __tablename__ = "lease"
    __table_args__ = (
        Index("uq_lease_live", "job_id", unique=True, **_only("state IN ('held', 'stopping')")),
        Index("ix_lease_worker", "worker_id", **_only("state IN ('held', 'stopping')")),
        Index("ix_lease_expiry", "expires_at", **_only("state IN ('held', 'stopping')")),
        Index("ix_lease_stopping", "worker_id", "batch_id", **_only("state = 'stopping'")),
        Index("ix_lease_claim", "worker_id", "claim_request"),
        Index("ix_lease_batch", "batch_id"),
        _COUNTS_UP,
    )

    id: int | None = _key()
    job_id: int = Field(foreign_key="job.id", index=True, sa_type=BigInteger)
    batch_id: str = Field(foreign_key="batch.id")
    worker_id: str = Field(foreign_key="worker.id")
    state: str = LeaseState.HELD
    claim_request: str
    unstarted: bool = False
    running_row: int | None = None
    spooled: bool = False
    missed_beats: int = 0
    granted_at: datetime = _at(nullable=False)
    renewed_at: datetime = _at(nullable=False)
    expires_at: datetime = _at(nullable=False)
    ended_at: datetime | None = _at()
    report_request: str | None = None
    failing: str | None = Field(default=None, sa_type=AnyText)
    """How the first rows of its batch failed on its worker, all alike; and since when the worker says so."""
    failing_at: datetime | None = _at()
    receipt: dict[str, Any] | None = _json_or_null()


class Segment(SQLModel, table=True):
    """Finished rows of a shard, handed in together: a byte range of a hand-in's blob (PROTOCOL 5)."""

    __tablename__ = "segment"
    __table_args__ = (
        UniqueConstraint("lease_id", "seq"),
        Index("ix_segment_job", "job_id", "id"),
        Index("ix_segment_batch", "batch_id", "id"),
        _COUNTS_UP,
    )

    id: int | None = _key()
    lease_id: int = Field(foreign_key="lease.id", sa_type=BigInteger)
    job_id: int = Field(foreign_key="job.id", sa_type=BigInteger)
    batch_id: str = Field(foreign_key="batch.id")
    seq: int
    rows: str
    completed: int
    failed: int
    digest: str
    blob_key: str = Field(foreign_key="blob.key", index=True)
    start: int = Field(sa_type=BigInteger)
    length: int = Field(sa_type=BigInteger)
    stored_at: datetime = _at(nullable=False)
    txid: int | None = _txid()


class Event(SQLModel, table=True):
    """What happened, written in the transaction that made it happen."""

    __tablename__ = "event"
    __table_args__ = (Index("ix_event_subject", "subject", "seq"), Index("ix_event_org", "org_id", "seq"), _COUNTS_UP)

    seq: int | None = _key()
    at: datetime = _at(nullable=False, index=True)
    type: str
    org_id: str | None = None
    subject: str
    actor: str
    data: dict[str, Any] = _json("{}")
    txid: int | None = _txid()


class WebhookEndpoint(SQLModel, table=True):
    """Who is told of the ends of an org's batches. Its secret is derived and stored nowhere (app.domain.webhooks).

    `generation` counts its secrets, `secret_hint` is of the newest one. A deleted endpoint keeps its row, for the
    deliveries that name it.
    """

    __tablename__ = "webhook_endpoint"
    __table_args__ = (Index("ix_webhook_endpoint_org", "org_id", "seq"), _COUNTS_UP)

    seq: int | None = _key()
    id: str = Field(unique=True)
    org_id: str = Field(foreign_key="org.id")
    name: str = Field(sa_type=AnyText)
    url: str
    event_types: list[str] = _json("[]")
    generation: int = 1
    secret_hint: str
    old_secret_until: datetime | None = _at()
    """Until then tries are signed with the secret before, too."""
    created_at: datetime = _at(nullable=False)
    updated_at: datetime = _at(nullable=False)
    succeeded_at: datetime | None = _at()
    failed_at: datetime | None = _at()
    last_error: str | None = Field(default=None, sa_type=AnyText)
    disabled_at: datetime | None = _at()
    disabled_reason: str | None = Field(default=None, sa_type=AnyText)
    deleted_at: datetime | None = _at()


class SweepState(SQLModel, table=True):
    """When each sweep ran last; a compare-and-set on it elects the process that runs a pass (PROTOCOL 6)."""

    __tablename__ = "sweep_state"

    name: str = Field(primary_key=True)
    last_run_at: datetime = _at(nullable=False)
    runner: str = ""
    counts: dict[str, int] = _json("{}")
    unfinished_since: datetime | None = _at()
    """When the oldest pass began that has not ended; None: the last one has."""


class PresenceTick(SQLModel, table=True):
    """One row: when API processes last said that they can hear heartbeats (PROTOCOL 4).

    `heard_since`: the end of the last gap in which a beat may have gone unheard, by the service's timing; None: there
    was none.
    """

    __tablename__ = "presence_tick"

    id: int = Field(default=1, primary_key=True)
    at: datetime = _at(nullable=False)
    heard_since: datetime | None = _at()


class KnownCluster(SQLModel, table=True):
    """One row: the PostgreSQL cluster that numbered the transactions in `txid` (app.db.restored); none on SQLite."""

    __tablename__ = "known_cluster"

    id: int = Field(default=1, primary_key=True)
    system_identifier: str


for _row in SQLModel.__subclasses__():
    _table = SQLModel.metadata.tables[str(_row.__tablename__)]
    for _column in _table.columns:
        if isinstance(_column.type, Json):
            _column.type.column = f"{_table.name}.{_column.name}"
            _column.type.values = TypeAdapter(_row.model_fields[_column.name].annotation or Any, config=STRICT)


def unreadable_in(row: SQLModel) -> list[str]:
    """Name the columns of a row that hold what cannot be read, as `table.column`."""
    columns = SQLModel.metadata.tables[str(row.__tablename__)].columns
    return [
        column.type.column
        for column in columns
        if isinstance(column.type, Json) and unreadable(getattr(row, str(column.key)))
    ]
