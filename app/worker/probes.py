"""Looks at the runtimes in a thread of its own: a runtime that hangs stretches no heartbeat (A-02)."""

from collections.abc import Callable

from app.worker.clock import Clock
from app.worker.loop import Loop
from app.worker.runtimes import Runtimes

ALIVE_SECONDS = 10.0
DEAD_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
"""So long rows wait for a runtime that died before the shards go to another worker."""


class Probes(Loop):
    """Tells `on_change` what changed, and `on_gone` once when no runtime was alive for `PATIENCE_SECONDS`."""

    name = "probes"

    def __init__(
        self, runtimes: Runtimes, clock: Clock, *, on_change: Callable[[], None], on_gone: Callable[[], None]
    ) -> None:
        super().__init__()
        self._runtimes = runtimes
        self._clock = clock
        self._on_change = on_change
        self._on_gone = on_gone
        self._alive_at = clock()
        self._said_gone = False

    def turn(self) -> float:
        """Look once."""
        if self._runtimes.probe():
            self._on_change()
        if self._runtimes.any_alive:
            self._alive_at = self._clock()
            self._said_gone = False
            return ALIVE_SECONDS
        if not self._said_gone and self._clock() - self._alive_at >= PATIENCE_SECONDS:
            self._said_gone = True
            self._on_gone()
        return DEAD_SECONDS
