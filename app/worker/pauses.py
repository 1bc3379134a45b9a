"""Rows that runtimes would not take just now, each with the moment when it is to be tried again."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator

from app.worker.judging import MAX_PEACE_SECONDS
from app.worker.units import Unit

_FIRST_PEACE_SECONDS = 0.5
_LONGEST_PEACE_SECONDS = 8.0


class Pauses:
    """Those of one batch. Not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Unit]] = []
        self._serial = itertools.count()

    def add(self, unit: Unit, now: float, *, not_before: float) -> None:
        """Have a row wait: longer each time that it was refused, and `not_before` seconds at least."""
        pause = min(_LONGEST_PEACE_SECONDS, _FIRST_PEACE_SECONDS * 2.0 ** min(unit.refusals, 10))
        peace = min(not_before, MAX_PEACE_SECONDS)
        due = now + max(peace, pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        heapq.heappush(self._heap, (due, next(self._serial), unit))

    def over(self, now: float) -> Iterator[Unit]:
        """Give back the rows whose pause is over."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]

    @property
    def next_due(self) -> float:
        """When the next one is; infinity for never."""
        return self._heap[0][0] if self._heap else float("inf")

    def discard(self, doomed: Callable[[Unit], bool]) -> int:
        """Throw rows away, and count them."""
        kept = [entry for entry in self._heap if not doomed(entry[2])]
        gone = len(self._heap) - len(kept)
        heapq.heapify(kept)
        self._heap = kept
        return gone

    def clear(self) -> None:
        """Throw all away."""
        self._heap.clear()
