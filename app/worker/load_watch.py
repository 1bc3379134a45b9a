"""Reads the runtimes' gauges in a thread of its own, while rows run whose number sizes itself (R-17)."""

from collections.abc import Callable
from typing import Protocol

from app.domain.runtimes import RuntimeLoad
from app.worker.loop import Loop
from app.worker.permits import Permits
from app.worker.prompt_size import PromptSize

READ_SECONDS = 1.0


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

    def __init__(self, runtimes: Gauges, permits: Permits, size: PromptSize, *, on_resized: Callable[[], None]) -> None:
        super().__init__()
        self._runtimes = runtimes
        self._permits = permits
        self._size = size
        self._on_resized = on_resized
        self._refusals = 0

    def turn(self) -> float:
        """Read once, when there is something to learn from it."""
        refusals, before = self._runtimes.refusals, self._refusals
        self._refusals = refusals
        if refusals > before:
            self._size.refused()
        if self._size.is_auto and self._permits.in_use:
            load = self._runtimes.load()
            if load is not None and self._size.loaded(load, self._permits.in_use):
                self._on_resized()
        return READ_SECONDS
