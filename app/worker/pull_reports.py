"""Tells the control plane how far pulls are: seldom enough that nobody minds, and their ends for sure (A-06)."""

import threading
from collections.abc import Callable
from typing import NamedTuple

import structlog

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed, Refused, TryLater
from app.domain.pulls import Pull
from app.schemas.pulls import ModelProgress, PullInfo
from app.worker.clock import Clock
from app.worker.loop import Loop

EVERY_SECONDS = 1.0
"""At most so often, and then only when a hundredth of the model has come."""
SLOW_SECONDS = 10.0
"""After so long whatever has come is told."""
_IDLE_SECONDS = 60.0
_HUNDREDTH = 100
log = structlog.get_logger("gpuyard.worker")


class _Sent(NamedTuple):
    pull: Pull
    at: float


class PullReports(Loop):
    """`note` returns at once; what is noted goes out by this loop's own thread, the latest word of each pull."""

    name = "pull-reports"

    def __init__(
        self,
        plane: ControlPlane,
        worker_id: str,
        boot_id: str,
        clock: Clock,
        on_dismissed: Callable[[Dismissed], None],
    ) -> None:
        super().__init__()
        self._plane = plane
        self._worker_id = worker_id
        self._boot_id = boot_id
        self._clock = clock
        self._on_dismissed = on_dismissed
        self._lock = threading.Lock()
        self._latest: dict[int, Pull] = {}
        self._sent: dict[int, _Sent] = {}

    def note(self, pull: Pull) -> None:
        """Take how far a pull is now."""
        with self._lock:
            is_new = pull.number not in self._latest
            self._latest[pull.number] = pull
        if is_new or pull.ended:
            self.wake()

    def turn(self) -> float:
        """Send what is due."""
        with self._lock:
            latest = list(self._latest.values())
        for pull in latest:
            if self._is_due(pull):
                self._send(pull)
        return EVERY_SECONDS if self._latest else _IDLE_SECONDS

    def _is_due(self, pull: Pull) -> bool:
        sent = self._sent.get(pull.number)
        if sent is None or pull.ended:
            return True
        waited = self._clock() - sent.at
        grown = pull.completed - sent.pull.completed
        if pull == sent.pull or waited < EVERY_SECONDS:
            return False
        return waited >= SLOW_SECONDS or grown * _HUNDREDTH >= pull.total

    def _send(self, pull: Pull) -> None:
        message = ModelProgress(
            worker_id=self._worker_id, boot_id=self._boot_id, **PullInfo.of(pull).model_dump(mode="python")
        )
        try:
            self._plane.model_progress(message)
        except TryLater:
            return  # the next turn has newer figures, and an end stays due
        except Dismissed as error:
            self._on_dismissed(error)
            self.stop()
            return
        except Refused as error:
            log.warning("model_progress.refused", why=str(error), code=error.code)
        with self._lock:
            self._sent[pull.number] = _Sent(pull, self._clock())
            if pull.ended:
                self._latest.pop(pull.number, None)
                self._sent.pop(pull.number, None)
