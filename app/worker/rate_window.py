"""Measures how many rows a second come out of the runtimes at one number in flight (R-17)."""

import math

from app.worker.clock import Clock

LEAST_SECONDS = 0.15


class RateWindow:
    """Lets the answers pass that are owed to an earlier number in flight, then counts. Its owner locks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight = self._settle = 0

    @property
    def settling(self) -> bool:
        """Whether the answers that come now still say nothing about the present number."""
        return self._settle > 0

    def open(self, *, in_flight: int, rounds: int, least_rows: int, clearly: float = math.inf) -> None:
        """Begin: `rounds` answers for each prompt in flight, so that it means the same at 2 ms and at 20 s a row.

        At least `least_rows`: a few say little about rows of different lengths. A rate that is `clearly` high enough
        after one round needs no second.
        """
        owed = self._in_flight or in_flight
        self._in_flight = in_flight
        self._clearly = clearly
        self._round = max(in_flight, least_rows)
        self._wanted = in_flight * max(rounds, math.ceil(least_rows / in_flight))
        self.reopen()
        self._settle = owed

    def reopen(self) -> None:
        """Begin anew: what was counted says nothing, because rows ran out."""
        self._settle = self._in_flight
        self._rows = 0
        self._since = self._times = self._squares = self._products = 0.0

    def count(self) -> float | None:
        """Count an answer. Gives rows a second when the window is full."""
        now = self._clock()
        if self._settle:
            self._settle -= 1
            self._since = now
            return None
        self._rows += 1
        elapsed = now - self._since
        self._times += elapsed
        self._squares += elapsed * elapsed
        self._products += elapsed * self._rows
        if elapsed < LEAST_SECONDS:
            return None
        if self._rows >= self._wanted:
            return self._slope()
        if self._rows >= self._round and self._rows / elapsed >= self._clearly:
            return self._rows / elapsed
        return None

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
