"""Measures how many rows a second come out of the runtimes at one number in flight (R-17)."""

import math
from statistics import median

from app.worker.clock import Clock
from app.worker.throughput import Throughput

LEAST_TIMES = 8
"""So many rows' times tell something."""


class RateWindow:
    """Lets the answers pass that are owed to an earlier number in flight, then counts. Its owner locks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight = self._settle = 0

    @property
    def settling(self) -> bool:
        """Whether the answers that come now still say nothing about the present number."""
        return self._settle > 0

    def open(
        self,
        *,
        in_flight: int,
        rounds: int,
        least_rows: int,
        least_seconds: float,
        clearly: float = math.inf,
        clearly_less: float = 0.0,
        clear_rows: int = 0,
    ) -> None:
        """Begin: `rounds` answers for each prompt in flight, so that it means the same at 2 ms and at 20 s a row.

        At least `least_rows`: a few say little about rows of different lengths. A rate that is `clearly` high enough
        after one round needs no second, and one below `clearly_less` needs no more than `clear_rows`.
        """
        settle = max(self._in_flight, in_flight)  # what is owed, or until added rows queue, too
        self._in_flight = in_flight
        self._clearly, self._clearly_less = clearly, clearly_less
        self._enough_for_less = max(in_flight * rounds, clear_rows)
        self._least_seconds = least_seconds
        self._round = max(in_flight, least_rows)
        self._wanted = in_flight * max(rounds, math.ceil(least_rows / in_flight))
        self.reopen()
        self._settle = settle

    def reopen(self) -> None:
        """Begin anew: what was counted says nothing, because rows ran out."""
        self._settle = self._in_flight
        self._rows = 0
        self._since = self._times = self._squares = self._products = 0.0
        self._took: list[float] = []

    def count(self, began_at: float) -> Throughput | None:
        """Count an answer to a row that began then. Gives what came out once the window is full."""
        now = self._clock()
        if self._settle:
            self._settle -= 1
            self._since = now
            return None
        if began_at >= self._since:  # its whole time was at this number, behind rows that were, too
            self._took.append(now - began_at)
        self._rows += 1
        elapsed = now - self._since
        self._times += elapsed
        self._squares += elapsed * elapsed
        self._products += elapsed * self._rows
        if elapsed < self._least_seconds:
            return None
        if self._rows >= self._wanted:
            return self._told(self._slope())
        if self._rows >= self._round and self._rows / elapsed >= self._clearly:
            return self._told(self._rows / elapsed)
        if self._rows >= self._enough_for_less and (slope := self._slope()) < self._clearly_less:
            return self._told(slope)
        return None

    def _told(self, counted: float) -> Throughput:
        middle = median(self._took) if len(self._took) >= LEAST_TIMES else 0.0
        return Throughput(counted, self._in_flight / middle if middle else None)

    def _slope(self) -> float:
        """Give rows a second as the slope of a line through all answers.

        Rows of equal length end together, engine-full by engine-full. Between the first and the last answer there
        may then be one engine-full more or less than the rate tells, a fifth of a short window; a line is hardly moved.
        """
        count = self._rows
        spread = self._squares - self._times * self._times / count
        if spread <= 0:
            return count / (self._times / count)
        return (self._products - self._times * (count + 1) / 2) / spread
