"""Leaving: one path for SIGTERM, SIGINT, an idle worker and a drain command (DR-01 to DR-09, DESIGN 7).

    draining      no new row starts; leases that began none are released at once; rows in flight get drain_seconds
    terminating   what is still in flight is cut; finished rows are handed in or stay in the spool; leases are released
    bye           one try of two seconds; then the process ends

A second signal goes straight to terminating. A dismissed worker starts there, hands nothing in and exits 1.
"""

import threading
from collections.abc import Callable

import structlog

from app.domain.workers import ByeReason, Phase
from app.worker.shares import Shares

HAND_IN_SECONDS = 10.0
"""After the cut, so long for the last hand-ins and releases; what is not answered then stays in the spool."""

log = structlog.get_logger("gpuyard.worker")


class Drain:
    """Runs once. `set_phase` tells the control plane, `leave(reason, abandoned)` says bye and ends the process."""

    def __init__(
        self,
        shares: Shares,
        *,
        drain_seconds: float,
        kill_after_seconds: float,
        set_phase: Callable[[Phase], object],
        leave: Callable[[ByeReason, int], None],
    ) -> None:
        self._shares = shares
        self._drain_seconds = drain_seconds
        self._kill_after_seconds = kill_after_seconds
        self._set_phase = set_phase
        self._leave = leave
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def longest_seconds(self) -> float:
        """After this long the process should be gone, whatever hangs."""
        return self._drain_seconds + self._kill_after_seconds + HAND_IN_SECONDS

    def start(self, reason: ByeReason) -> bool:
        """Begin, in a thread of its own. False: it began before."""
        with self._lock:
            if self._thread is not None:
                return False
            self._thread = threading.Thread(target=self._run, args=(reason,), name="gpuyard-drain", daemon=True)
            self._thread.start()
            return True

    def hurry(self) -> None:
        """Grant what is in flight no more time."""
        self._hurry.set()
        for share in self._shares.all():
            share.cut("the worker leaves now")

    def _run(self, reason: ByeReason) -> None:
        abandoned = 0
        try:
            log.info("worker.draining", reason=reason, shares=len(self._shares.all()))
            self._set_phase(Phase.DRAINING)
            for share in self._shares.all():
                share.wind_down("the worker drains")
            self._wait(self._drain_seconds)
            self._set_phase(Phase.TERMINATING)
            for share in self._shares.all():
                share.cut("the worker leaves")
            self._shares.wait_none(self._kill_after_seconds)
            left = self._shares.all()
            for share in left:
                share.give_up()
            self._shares.wait_none(HAND_IN_SECONDS)
            # Of those that were there: a share that gave up is gone, and what it could not bring home is not.
            abandoned = sum(share.abandoned for share in left)
        except Exception:
            log.exception("drain.failed")
        finally:
            self._leave(reason, abandoned)

    def _wait(self, seconds: float) -> None:
        """Wait for the shares to end; a hurried drain has cut them already, so they do."""
        waiting = seconds
        while waiting > 0 and not self._hurry.is_set():
            step = min(0.5, waiting)
            if self._shares.wait_none(step):
                return
            waiting -= step
