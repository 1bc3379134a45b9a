"""Tells from how long rows take what a number in flight brings, one row's time after it was chosen (R-17)."""

import math
from statistics import quantiles

from app.worker.clock import Clock

LEAST_ROWS = 8
EQUAL = 1.5
"""Where the longest row took no more than so many times what nine tenths took, none waited for others."""


class Durations:
    """Looks at the rows that began at the present number in flight. Its owner locks.

    So many in flight, each for so long: that is the rate (Little's law). A rate that is counted is surer, and needs the
    answers that are owed to the number before to pass first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.forget()
        self.open(1)

    def forget(self) -> None:
        """Know nothing of how long rows take."""
        self._least = math.inf

    def open(self, in_flight: int) -> None:
        """Begin: rows that began before say nothing of this number."""
        self._in_flight = in_flight
        self._wanted = max(LEAST_ROWS, in_flight)
        self.reopen()

    def reopen(self) -> None:
        """Begin anew."""
        self._since = self._clock()
        self._took: list[float] = []

    def count(self, began_at: float) -> float | None:
        """Count a row that was answered just now. Gives rows a second once it is enough.

        By what nine tenths of them took, for many of those that were added first not have to wait yet.
        """
        if began_at < self._since or len(self._took) >= self._wanted:
            return None
        self._took.append(self._clock() - began_at)
        if len(self._took) < self._wanted:
            return None
        self._most = quantiles(self._took, n=10)[-1]
        self._least = min(self._least, self._most)
        return self._in_flight / self._most if self._most else None

    @property
    def hardly_grew(self) -> bool:
        """Whether they took about as long as with the number that was best so far: hardly any row waits."""
        return self._most <= EQUAL * self._least

    @property
    def are_equal(self) -> bool:
        """Whether all of them took about as long."""
        return max(self._took) <= EQUAL * self._most
