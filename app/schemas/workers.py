"""A worker's life on the wire: hello, heartbeat, bye (A-01, A-02, A-12, A-27; PROTOCOL 2, 3).

POST /workers/register          Hello      -> Welcome         409 name_taken, 400 unknown_pool
POST /workers/{id}/heartbeat    Heartbeat  -> HeartbeatAnswer  409 superseded
POST /workers/{id}/bye          Bye        -> 204
"""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from app.domain.eligibility import Serving
from app.domain.leases import LeaseVerdict
from app.domain.workers import Activity, ByeReason, Phase, Transport
from app.schemas.wire import Count, Figure, LeaseId, Moment, Name, Size, Wire

PROTOCOL = 1
"""The wire's version. A worker of another one is refused with 426."""

WORKER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
WorkerName = Annotated[str, StringConstraints(pattern=WORKER_NAME, max_length=128)]
Opaque = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$", max_length=128)]

MAX_MODELS = 2_000
"""Ids and aliases of one runtime."""
MAX_WORKER_MODELS = 4_000
"""Of all runtimes of a worker. Every heartbeat and claim reads them."""
MAX_WORKER_TEXT = 256 * 1024
"""Characters of these, and of the names of parameters beside them."""
Label = Annotated[str, StringConstraints(max_length=200)]
MAX_MODEL_NAME = 512
MAX_ENDPOINTS = 32
MAX_SLOTS = 1_000_000
MAX_PARAMETERS = 200
"""Parameters that one runtime tells it does not take on one endpoint."""
MAX_PARAMETER_NAME = 64
MAX_ENDPOINT = 200
EndpointPath = Annotated[str, StringConstraints(max_length=MAX_ENDPOINT)]
ParameterNames = Annotated[
    list[Annotated[str, StringConstraints(max_length=MAX_PARAMETER_NAME)]], Field(max_length=MAX_PARAMETERS)
]
ModelName = Annotated[str, StringConstraints(max_length=MAX_MODEL_NAME)]


class RuntimeInfo(Wire):
    """One runtime of a worker as its last probe found it. `models` are ids and aliases.

    `unsupported` are the parameters it does not take, by endpoint; a worker that does not know the field takes all.
    """

    name: str = Field(max_length=200)
    kind: str = Field(max_length=64)
    alive: bool
    reason: str | None = Field(default=None, max_length=500)
    models: list[ModelName] = Field(default_factory=list, max_length=MAX_MODELS)
    endpoints: list[EndpointPath] = Field(default_factory=list, max_length=MAX_ENDPOINTS)
    slots: int | None = Field(default=None, ge=0, le=MAX_SLOTS)
    version: str | None = Field(default=None, max_length=100)
    pulls: bool = False
    unsupported: dict[EndpointPath, ParameterNames] = Field(default_factory=dict, max_length=MAX_ENDPOINTS)

    def to_domain(self) -> Serving:
        """Keep what eligibility asks for."""
        return Serving(
            kind=self.kind,
            models=frozenset(self.models),
            endpoints=frozenset(self.endpoints),
            alive=self.alive,
            pulls=self.pulls,
            unsupported={endpoint: frozenset(names) for endpoint, names in self.unsupported.items()},
            name=self.name,
            reason=self.reason or "",
        )

    @property
    def text(self) -> int:
        """Characters of its lists of names."""
        return sum(map(len, self.models)) + sum(len(name) for names in self.unsupported.values() for name in names)


def _bounded(runtimes: list[RuntimeInfo]) -> list[RuntimeInfo]:
    """Check what the runtimes of a worker list together."""
    models, text = sum(len(runtime.models) for runtime in runtimes), sum(runtime.text for runtime in runtimes)
    if models > MAX_WORKER_MODELS or text > MAX_WORKER_TEXT:
        raise ValueError(
            f"they list {models} models, in {text} characters with their parameters; a worker may list "
            f"{MAX_WORKER_MODELS} in {MAX_WORKER_TEXT}"
        )
    return runtimes


Runtimes = Annotated[list[RuntimeInfo], Field(max_length=64), AfterValidator(_bounded)]

MAX_GPUS = 64
MAX_STARTS = 2**31 - 1


class GpuSample(Wire):
    """One GPU, or one MIG slice of it, as NVML shows it. Memory in bytes, utilisation in percent.

    A figure is null where the GPU has none, or does not tell: then `error` says why.
    """

    index: Count
    name: str = Field(max_length=200)
    memory_total: Size | None = None
    memory_used: Size | None = None
    utilization: Figure | None = None
    error: str | None = Field(default=None, max_length=200)


class HostSample(Wire):
    """A worker's host at the moment of a heartbeat (HD-06). Load is the 1-minute average, sizes in bytes.

    `driver` is the version of NVIDIA's driver, `gpu_error` why it tells of no GPU. With a `spool_error` the worker's
    disk takes no more of what it finishes, and it claims nothing until there is room. `not_ready` is what a worker in
    set-up waits for.
    """

    load1: Figure | None = None
    cpus: Count | None = None
    memory_total: Size | None = None
    memory_available: Size | None = None
    disk_free: Size | None = None
    gpus: list[GpuSample] = Field(default_factory=list, max_length=MAX_GPUS)
    driver: str | None = Field(default=None, max_length=200)
    gpu_error: str | None = Field(default=None, max_length=200)
    spool_error: str | None = Field(default=None, max_length=200)
    not_ready: str | None = Field(default=None, max_length=500)


class Hello(Wire):
    """A worker introduces itself. `held` are leases that it still works on; all its others end at once (R-25).

    `named` false: nobody chose `name`, so a single-worker token's name is better (TK-02). `row_by_row`: it knows grants
    of that name; an older worker does not say so. `starts`: processes that this install has had; 0: it does not say.
    """

    name: WorkerName
    named: bool = True
    install_id: Opaque
    boot_id: Opaque
    starts: int = Field(default=0, ge=0, le=MAX_STARTS)
    pool: Name
    transport: Transport
    protocol: Count = PROTOCOL
    phase: Phase | None = None
    hostname: str = Field(default="", max_length=255)
    slots: int = Field(default=1, ge=0, le=1000)
    max_concurrent_prompts: int | None = Field(default=None, ge=1, le=1_000_000)
    tags: list[Label] = Field(default_factory=list, max_length=200)
    versions: dict[Label, Label] = Field(default_factory=dict, max_length=50)
    runtimes: Runtimes = Field(default_factory=list)
    held: list[LeaseId] = Field(default_factory=list, max_length=10_000)
    sample: HostSample | None = None
    row_by_row: bool = False


class TimingInfo(Wire):
    """The rungs of the pool's ladder, in seconds (app.domain.timing.Timing)."""

    renew_seconds: float
    grace_seconds: float
    toleration_seconds: float
    self_stop_seconds: float


class Welcome(Wire):
    """The control plane's answer to a hello."""

    worker_id: str
    name: str
    pool: str
    timing: TimingInfo
    leases: dict[int, LeaseVerdict] = Field(default_factory=dict)
    segment_seconds: float
    slots: int | None = None
    work: bool = False
    drain: bool = False


class Heartbeat(Wire):
    """A sign of life. `leases` are all whose end is not acknowledged yet; `unstarted` those of them with no row begun.

    `spooled` leases have their report in the worker's spool. `runtimes` is sent when it changed, and every 30 s.
    `after` is the `at` of the answer that was heard last: this beat was begun after it. `claiming` are the request ids
    of claims that are not answered yet. `looked` is the last `look` that was done, 0 before the first; an older worker
    does not say. `runtimes` go with it.
    """

    boot_id: Opaque
    after: Moment | None = None
    phase: Phase | None = None
    activity: Activity = Activity.IDLE
    current_invocations: Count = 0
    leases: list[LeaseId] = Field(default_factory=list, max_length=10_000)
    unstarted: list[LeaseId] = Field(default_factory=list, max_length=10_000)
    spooled: list[LeaseId] = Field(default_factory=list, max_length=10_000)
    claiming: list[Opaque] = Field(default_factory=list, max_length=1_000)
    sample: HostSample | None = None
    runtimes: Runtimes | None = None
    looked: Moment | None = None


class HeartbeatAnswer(Wire):
    """Per listed lease what holds of it, and what waits. Sent after the commit that renewed them (PROTOCOL 2).

    `reset_backoff` names the last time that somebody asked for it (BK-04): a mark not seen before ends a back-off.
    `at` is when the beat was taken, in the database's milliseconds: the next beat sends it back. `look` names a request
    to list the models of all runtimes again, and to beat once that is done.
    """

    leases: dict[int, LeaseVerdict]
    at: Moment | None = None
    work: bool = False
    drain: bool = False
    reset_backoff: str | None = None
    slots: int | None = None
    look: Moment | None = None


class Bye(Wire):
    """The last word of a worker that leaves by its own choice (BY-01).

    `inflight_abandoned` counts jobs that it neither ended nor gave back; `spooled` leases end at their time, not now.
    """

    boot_id: Opaque
    reason: ByeReason
    inflight_abandoned: Count = 0
    spooled: list[LeaseId] = Field(default_factory=list, max_length=10_000)
