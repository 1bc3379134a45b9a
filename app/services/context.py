"""What every use case is given: the yard (the service's own parts) and the caller (who asks)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from app.blobs.store import BlobStore
from app.db.store import Store
from app.domain.errors import Forbidden
from app.domain.org_limits import OrgLimits
from app.domain.timing import Timing
from app.domain.webhooks import MAX_TRIES, Network
from app.services.counters import Counters
from app.services.pace import Pace

IMPLIED: Mapping[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "submit": frozenset({"read", "submit"}),
    "worker": frozenset({"worker"}),
    "metrics": frozenset({"metrics"}),
    "admin": frozenset({"read", "submit", "metrics", "admin"}),
}
"""What each scope lets its holder do. A worker's key reaches nothing but the workers' own routes (DESIGN 11),
and a key for metrics nothing but the page of metrics."""


@dataclass(frozen=True, slots=True)
class BatchRing:
    """Messages to publish on a pool's queue: noted as rung by a transaction that was committed."""

    pool: str
    batch_id: str
    ring_no: int
    times: int


@dataclass(frozen=True, slots=True)
class ControlRing:
    """A message to publish on the control queue, noted likewise."""

    job_id: int
    batch_id: str
    ring_no: int


class Bells(Protocol):
    """Where services ring, after their commit. Never raises and never waits: a lost bell delays a job, no more.

    What was rung within `quiet_seconds` is not rung again.
    """

    @property
    def heard(self) -> bool:
        """Whether somebody publishes: a transaction may then note its own ring and have it published."""

    @property
    def trouble(self) -> str | None:
        """What keeps messages from being published, in the form `WHAT; WHAT TO DO`; None: nothing is known to."""

    def publish(self, ring: BatchRing | ControlRing) -> None:
        """Publish what a transaction has noted as rung. It is not noted again."""

    def batch(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Say that a batch has shards to claim."""

    def control(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Say that a batch has control work."""

    def stop(self, batch_id: str) -> None:
        """Tell the workers that hold leases of a batch to ask what became of them."""

    def call(self, pool: str) -> None:
        """Tell the workers of a pool to send a heartbeat now, whose answer has something for them."""


class Silence:
    """Bells for a process without a broker: the sweeps ring later."""

    heard = False
    trouble = None

    def publish(self, ring: BatchRing | ControlRing) -> None:
        """Publish nothing."""

    def batch(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Ring nothing."""

    def control(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        """Ring nothing."""

    def stop(self, batch_id: str) -> None:
        """Ring nothing."""

    def call(self, pool: str) -> None:
        """Call nobody."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds an operator may raise. Sizes in bytes, lives in seconds."""

    shard_rows: int = 256
    shard_bytes: int = 16 * 1024 * 1024
    max_rows: int = 50_000
    max_file_bytes: int = 209_715_200
    max_line_bytes: int = 64 * 1024 * 1024
    max_models: int = 100
    max_requirements: int = 250
    file_retention_seconds: int = 30 * 86_400
    blob_retention_seconds: int = 86_400
    event_retention_seconds: int = 30 * 86_400
    segment_retention_seconds: int = 86_400
    job_retention_seconds: int = 7 * 86_400
    batch_retention_seconds: int = 365 * 86_400
    webhook_retention_seconds: int = 30 * 86_400
    worker_retention_seconds: int = 30 * 86_400
    segment_seconds: float = 2.0
    max_attempts: int = 3
    max_losses: int = 5
    webhook_max_tries: int = MAX_TRIES
    org: OrgLimits = field(default_factory=OrgLimits)


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """How webhooks are sent. `key_file`: what secrets are derived from; `networks`: where else than to the Internet.

    `timeout_seconds` bounds a try as a whole.
    """

    key_file: Path | None = None
    networks: tuple[Network, ...] = ()
    timeout_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Yard:
    """The parts of the service that use cases work on.

    `drop_parameters`: batches that do not say what they want run without the parameters that a runtime does not take.
    `cross_request`: what becomes of parameters that reach across requests.
    `canary_rows`: so many rows of such a batch run first on each worker.
    """

    store: Store
    blobs: BlobStore
    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    default_pool: str = "gpu"
    drop_parameters: bool = False
    cross_request: Literal["drop", "fail", "pass"] = "drop"
    canary_rows: int = 8
    webhooks: WebhookRules = field(default_factory=WebhookRules)
    bells: Bells = field(default_factory=Silence)
    counters: Counters = field(default_factory=Counters)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `operator` marks the org that runs the service."""

    org_id: str
    token_id: str | None
    name: str
    scopes: frozenset[str]
    operator: bool = False
    single_worker: bool = False

    @property
    def in_process(self) -> bool:
        """Whether a part of the service itself calls, without a key."""
        return self.token_id is None

    @property
    def actor(self) -> str:
        """How events name the caller."""
        return f"token:{self.token_id}" if self.token_id else self.name

    def has(self, scope: str) -> bool:
        """Tell whether one of the caller's scopes grants `scope`."""
        return any(scope in IMPLIED[held] for held in self.scopes if held in IMPLIED)

    def need(self, *scopes: str) -> None:
        """Raise Forbidden unless one of the caller's scopes grants one of `scopes`."""
        if not any(self.has(scope) for scope in scopes):
            held = sorted(self.scopes)
            has = f"the scope{'s' if len(held) > 1 else ''} {', '.join(held)}" if held else "no scope"
            raise Forbidden(
                f"this key has {has}, and this needs {' or '.join(scopes)}. "
                f"An admin makes a key for it: gpuyard token create NAME --scope {scopes[0]}",
                code="missing_scope",
            )
