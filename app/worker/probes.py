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

    def __init__(
        self, runtimes: Runtimes, clock: Clock, *, on_change: Callable[[], None], on_looked: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._runtimes = runtimes
        self._clock = clock
        self._on_change = on_change
        self._on_looked = on_looked
        self._asked: int | None = None
        self._done: int | None = None
        self._all_at = float("-inf")
        runtimes.ends.on_doubt = self.wake

    def ask(self, request: int) -> None:
        """Look at everything anew, and tell `on_looked` once that is done. A request that is known changes nothing."""
        if request not in {self._asked, self._done}:
            self._asked = request
            self.wake()

    def turn(self) -> float:
        """Look once."""
        now = self._clock()
        asked = self._asked
        if asked is not None:
            self._runtimes.forget()
        all_of_them = asked is not None or not self._runtimes.some_troubled or now - self._all_at >= ALIVE_SECONDS
        if all_of_them:
            self._all_at = now
        if self._runtimes.probe(troubled_only=not all_of_them):
            self._on_change()
        if asked is not None:
            self._done, self._asked = asked, None if self._asked == asked else self._asked
            self._on_looked(asked)
            if self._asked is not None:  # another one came meanwhile
                self.wake()
        return TROUBLED_SECONDS if self._runtimes.some_troubled else ALIVE_SECONDS
