"""Reads the runtimes' gauges in a thread of its own, while rows run whose number sizes itself (R-17)."""

from collections.abc import Callable
from typing import Protocol

from app.domain.runtimes import RuntimeLoad
from app.worker.clock import Clock
from app.worker.loop import Loop
from app.worker.permits import Permits
from app.worker.prompt_size import PromptSize

IDLE_SECONDS = 1.0
LOOK_SECONDS = 0.2
"""Refusals are a number in memory, and each makes a row wait."""


class Gauges(Protocol):
    """Whoever can read the load of all runtimes, and knows how often they refused a row."""

    @property
    def refusals(self) -> int:
        """How many rows they would not take so far."""

    def load(self) -> RuntimeLoad | None:
        """Read it; None where a runtime does not tell."""


class LoadWatch(Loop):
    """Tells `size` each reading, and calls `on_resized` when that changed the number in flight."""

    name = "load-watch"

    def __init__(
        self, runtimes: Gauges, permits: Permits, size: PromptSize, clock: Clock, *, on_resized: Callable[[], None]
    ) -> None:
        super().__init__()
        self._runtimes = runtimes
        self._permits = permits
        self._size = size
        self._clock = clock
        self._on_resized = on_resized
        self._refusals = 0
        self._read_at = float("-inf")

    def turn(self) -> float:
        """Look once, and read when it is time, as long as there is something to learn."""
        if not (self._size.is_auto and self._permits.in_use):
            return IDLE_SECONDS
        refusals, before = self._runtimes.refusals, self._refusals
        self._refusals = refusals
        if refusals > before:
            self._size.refused()
        if self._clock() >= self._read_at + self._size.seconds_between_readings:
            self._read_at = self._clock()
            load = self._runtimes.load()
            if load is not None and self._size.loaded(load, self._permits.in_use):
                self._on_resized()
        return LOOK_SECONDS
