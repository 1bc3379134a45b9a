"""Looks at the runtimes in a thread of its own: a runtime that hangs stretches no heartbeat (A-02)."""

from collections.abc import Callable

from app.worker.clock import Clock
from app.worker.loop import Loop
from app.worker.runtimes import Runtimes

ALIVE_SECONDS = 10.0
TROUBLED_SECONDS = 1.0


class Probes(Loop):
    """Tells `on_change` when something changed. Runtimes in trouble are looked at more often than the others."""

    name = "probes"

    def __init__(self, runtimes: Runtimes, clock: Clock, *, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._runtimes = runtimes
        self._clock = clock
        self._on_change = on_change
        self._all_at = float("-inf")
        runtimes.ends.on_doubt = self.wake

    def turn(self) -> float:
        """Look once."""
        now = self._clock()
        all_of_them = not self._runtimes.some_troubled or now - self._all_at >= ALIVE_SECONDS
        if all_of_them:
            self._all_at = now
        if self._runtimes.probe(troubled_only=not all_of_them):
            self._on_change()
        return TROUBLED_SECONDS if self._runtimes.some_troubled else ALIVE_SECONDS
