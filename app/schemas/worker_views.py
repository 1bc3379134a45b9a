"""Workers as people see them (PL-06, PL-07, WS).

GET /v1/workers -> Listing of WorkerInfo    GET /v1/workers/{id or name} -> WorkerInfo
"""

from typing import Literal

from app.schemas.pulls import PullInfo
from app.schemas.wire import Wire
from app.schemas.workers import GpuSample, RuntimeInfo


class SlotInfo(Wire):
    """Slots of one class on a worker. An unreachable worker, or one over a threshold, has none free (PL-02, PL-08)."""

    total: int
    free: int


class WorkerInfo(Wire):
    """A worker. `state` is the stored one, or `offline`, `stale`, `unreachable` as its silence says.

    `no_lease` is why it gets no job now, null when it may; `no_lease_text` is what the worker says of that. `pulls` are
    the models that its runtimes fetch, and the last that they fetched or could not. Load is the 1-minute load per CPU,
    sizes are in bytes.
    """

    id: str
    object: Literal["worker"] = "worker"
    name: str
    pool: str
    state: str
    phase: str | None
    activity: str
    transport: str
    hostname: str
    last_seen_at: float
    seen_seconds: float
    created_at: int
    drain_requested_at: float | None = None
    slots: dict[str, SlotInfo]
    max_concurrent_prompts: int | None
    current_invocations: int
    load_per_cpu: float | None
    memory_available: int | None
    memory_total: int | None
    disk_free: int | None
    no_lease: str | None
    no_lease_text: str | None = None
    gpus: list[GpuSample]
    driver: str | None
    gpu_error: str | None
    runtimes: list[RuntimeInfo]
    pulls: list[PullInfo]
    tags: list[str]
    versions: dict[str, str]
