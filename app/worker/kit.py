"""What every share of a worker works with."""

from collections.abc import Callable
from dataclasses import dataclass

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed
from app.worker.clock import Clock
from app.worker.counters import WorkerCounters
from app.worker.held import HeldLeases
from app.worker.permits import Permits
from app.worker.puller import Puller
from app.worker.runtimes import Runtimes
from app.worker.setting_up import ThreadStarts
from app.worker.spool import Spool


@dataclass(frozen=True, slots=True)
class Kit:
    """One worker's parts, and what a share tells the agent.

    `ring` when there may be work, `on_dismissed` when the control plane wants nothing more of us, `row_done` and
    `starved` for the size of the prompt pool, `told_to_drain` when a claim is answered that this worker is to leave.
    `starts` hears of claims that could not be started. `is_ready`: it is in the phase in which it claims, and the
    control plane knows what its runtimes serve.
    """

    plane: ControlPlane
    worker_id: str
    boot_id: str
    held: HeldLeases
    spool: Spool
    permits: Permits
    runtimes: Runtimes
    puller: Puller
    clock: Clock
    row_timeout_seconds: float
    segment_seconds: float
    ring: Callable[[], None]
    on_dismissed: Callable[[Dismissed], None]
    row_done: Callable[[float], None]
    starved: Callable[[], None]
    counters: WorkerCounters
    starts: ThreadStarts
    told_to_drain: Callable[[], object] = lambda: None
    is_ready: Callable[[], bool] = lambda: True

    @property
    def may_take(self) -> bool:
        """Whether more work is of use: a runtime is alive, and what it finishes can be kept until it is stored."""
        return self.is_ready() and self.runtimes.any_alive and self.spool.error is None
