"""Tells from how long rows take what a number in flight brings, one row's time after it was chosen (R-17)."""

from statistics import median

from app.worker.clock import Clock

LEAST_ROWS = 8
EQUAL = 1.5
"""Where the longest row took no more than so many times the median, none waited for others."""


class Durations:
    """Looks at the rows that began at the present number in flight. Its owner locks.

    So many in flight, each for so long: that is the rate (Little's law). A rate that is counted is surer, and needs the
    answers that are owed to the number before to pass first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.open(1)

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
        """Count a row that was answered just now. Gives rows a second once it is enough."""
        if began_at < self._since or len(self._took) >= self._wanted:
            return None
        self._took.append(self._clock() - began_at)
        if len(self._took) < self._wanted:
            return None
        self._middle = median(self._took)
        return self._in_flight / self._middle if self._middle else None

    @property
    def are_equal(self) -> bool:
        """Whether all of them took about as long."""
        return max(self._took) <= EQUAL * self._middle
