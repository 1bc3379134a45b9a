"""What the last readings of the runtimes' own gauges agree on (R-17)."""

import math
from collections import deque

from app.domain.runtimes import RuntimeLoad

READINGS = 5
"""Only what all of them say counts: rows that end together look like an idle engine and a long queue for one step."""
TWICE = 2
"""At least so many readings show a backlog: one alone may fall between two steps of the engine."""
HEADROOM = 1.125
"""In flight per row that the runtimes work on. The eighth keeps their queue from running dry between two answers."""
LONG_QUEUE = 0.25
"""A queue above this part of what runs is longer than it has to be; the eighth is wanted."""
FEW = 0.05
"""So many of those at work may wait for its next step."""
ALL = 0.95
"""An engine that works on so much of what we have in flight takes everything: the rest is on its way."""


class EngineGauges:
    """Remembers readings; each question has an answer only when there are enough of them. Its owner locks."""

    def __init__(self) -> None:
        self._readings: deque[tuple[RuntimeLoad, int]] = deque(maxlen=READINGS)

    def read(self, load: RuntimeLoad, in_flight: int) -> None:
        """Take note of a reading, and of how many rows this worker had in flight."""
        self._readings.append((load, in_flight))

    def forget(self) -> None:
        """The number in flight changes: what was read is of another one."""
        self._readings.clear()

    @property
    def queueing(self) -> bool:
        """Rows waited at every reading: more in flight would only wait longer."""
        return self.agree and all(load.waiting for load, _ in self._readings)

    @property
    def backlog(self) -> bool:
        """At each reading, twice at least, far more waited than has to: no more in flight can pay."""
        return len(self._readings) >= TWICE and all(_is_backlog(load) for load, _ in self._readings)

    @property
    def full(self) -> bool:
        """Twice some waited behind an engine at work, be it with readings between: it takes no more than it has."""
        return sum(load.waiting > max(1, FEW * load.running) for load, _ in self._readings if load.running) >= TWICE

    @property
    def none_waits(self) -> bool:
        """Whether each reading, if there was one, found all that is in flight at work."""
        return bool(self._readings) and all(
            not load.waiting and load.running >= ALL * mine for load, mine in self._readings
        )

    @property
    def may_be_backlog(self) -> bool:
        """Far more waited just now. It may be a batch of prompts between two steps of the engine."""
        return bool(self._readings) and _is_backlog(self._readings[-1][0])

    def takes_all(self, size: int) -> bool:
        """Nothing waited, and the engine worked on all of the `size` rows that may be in flight: it may have room."""
        return self.agree and all(
            not load.waiting and in_flight >= size and load.running >= ALL * size for load, in_flight in self._readings
        )

    def fair_size(self, *, soon: bool = False) -> int | None:
        """Give the number in flight that leaves an eighth waiting, when far more wait; None: the queue is as it should.

        `soon`: two readings are enough. Others may use the engines too: each brings down its own part of the queue, and
        nobody more than that.
        """
        if not (self.agree or (soon and self.backlog)):
            return None
        waiting = min(load.waiting for load, _ in self._readings)
        running = max(load.running for load, _ in self._readings)
        if waiting <= max(1, LONG_QUEUE * running):
            return None
        in_flight = max(mine for _, mine in self._readings)
        return max(1, math.ceil(in_flight * HEADROOM * running / (running + waiting)))

    @property
    def agree(self) -> bool:
        """Whether there are enough of them."""
        return len(self._readings) == READINGS


def _is_backlog(load: RuntimeLoad) -> bool:
    return load.running > 0 and load.waiting > max(1, LONG_QUEUE * load.running)
