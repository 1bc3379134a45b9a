"""A runtime's circuit breaker: may a row start there now? Answered by what came of rows, not by pings (B-14).

    closed ──3 failures in a row, or the probe says dead──> open ──the pause is over: one row──> trial
       ^                                                     ^ │                                   │
       └───── a row was answered ────────────────────────────┼─┼───────────────────────────────────┤
                                                             └─┼─────── it failed: longer pause ────┘
    open for down_seconds ─> down: rows are given back, nothing is asked for ─> open again, on probation: when its
    rest is over, or when the probe sees a dead runtime come back. A trial that fails on probation is down at once.

At most one trial of an outage is out. A trial has a number, for one that outlives its outage is a row like any other.

A probe that answers closes it only when nothing but a probe had opened it: a server may list its models and hang.
"""

import random
from collections.abc import Callable

from app.worker.clock import Clock

FAILURES = 3
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 15.0
FIRST_REST_SECONDS = 30.0
LONGEST_REST_SECONDS = 300.0


class Breaker:
    """One runtime's. Not thread-safe: `Runtimes` guards it. Times are seconds of `clock`."""

    def __init__(
        self, clock: Clock, down_seconds: float, *, chance: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._clock = clock
        self.down_seconds = down_seconds
        self._chance = chance
        self._dead = False
        self._opened_at = self._try_at = self._back_at = clock()
        self._trials = 0
        self._close()

    def _close(self) -> None:
        self.is_closed = not self._dead
        self.is_down = False
        if self.is_closed:
            self.reason = ""
        self.failures = 0
        self._failed_by_doing = False
        self._believed_at = float("inf")
        self._trial = 0
        self._on_probation = False
        self._pause = FIRST_PAUSE_SECONDS
        self._rest = FIRST_REST_SECONDS

    def may_start(self) -> bool:
        """Tell whether a row may start now."""
        if self.is_closed:
            return True
        return not (self._dead or self.is_down or self._trial) and self._clock() >= self._try_at

    def start(self) -> int:
        """Start a row, which `may_start` allowed: 0, or its number as the trial, whose end is to be told always."""
        if self.is_closed:
            return 0
        self._trials += 1
        self._trial = self._trials
        return self._trial

    def answered(self) -> None:
        """Some row was answered, whatever with."""
        self._close()

    def failed(
        self, reason: str, *, trial: int = 0, not_before: float = 0.0, believed_at: float = float("inf")
    ) -> None:
        """A row failed for the runtime's sake, which asked for `not_before` seconds of peace.

        `believed_at`: from then on such a failure is taken for an answer. Until then it does not go down.
        """
        self._believed_at = believed_at
        if self.is_closed:
            self.failures += 1
            if self.failures >= FAILURES:
                self._open(reason)
                self._failed_by_doing = True
                self._wait(not_before)
            return
        self._failed_by_doing = True
        if not trial or trial != self._trial:
            return
        self._trial = 0
        self.reason = reason
        if self._on_probation and not self._will_be_believed:
            self._go_down()
            return
        self._pause = min(LONGEST_PAUSE_SECONDS, 2 * self._pause)
        self._wait(not_before)

    def given_up(self, trial: int) -> None:
        """A trial ended without saying anything about the runtime: the next row is the trial."""
        if trial == self._trial:
            self._trial = 0

    def died(self, reason: str) -> None:
        """The probe finds nobody."""
        self._dead = True
        if self.is_closed:
            self._open(reason)
        self.reason = reason

    def lives(self) -> None:
        """The probe finds somebody."""
        if not self._dead:
            return
        self._dead = False
        if not self._failed_by_doing:
            self._close()
            return
        self._try_at = self._clock()
        if self.is_down:
            self._go_on_probation()

    def look(self) -> bool:
        """Do what time has brought. True: it went down, or came back on probation."""
        if self.is_closed:
            return False
        now = self._clock()
        if not self.is_down:
            if self._will_be_believed or now < self._opened_at + self.down_seconds:
                return False
            self._go_down()
            return True
        if self._dead or now < self._back_at:
            return False
        self._go_on_probation()
        return True

    @property
    def next_at(self) -> float:
        """When time will bring something; infinity for never."""
        if self.is_closed:
            return float("inf")
        if self.is_down:
            return float("inf") if self._dead else self._back_at
        waits = self._dead or self._trial > 0 or self._try_at <= self._clock()
        down_at = float("inf") if self._will_be_believed else self._opened_at + self.down_seconds
        return down_at if waits else min(down_at, self._try_at)

    @property
    def _will_be_believed(self) -> bool:
        return self._believed_at < float("inf")

    def _open(self, reason: str) -> None:
        self.is_closed = False
        self.reason = reason
        self._opened_at = self._try_at = self._clock()
        self._trial = 0

    def _wait(self, not_before: float) -> None:
        # Part of it is chance, so that the workers of one runtime do not come back in one moment.
        now = self._clock()
        self._try_at = now + max(not_before, self._pause * self._chance(0.75, 1.25))
        if self._will_be_believed:
            self._try_at = min(self._try_at, max(now, self._believed_at))

    def _go_down(self) -> None:
        self.is_down = True
        self._back_at = self._clock() + self._rest * self._chance(0.75, 1.25)
        self._rest = min(LONGEST_REST_SECONDS, 2 * self._rest)

    def _go_on_probation(self) -> None:
        self.is_down = False
        self._on_probation = True
        self._opened_at = self._try_at = self._clock()
