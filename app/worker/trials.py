"""Watches broken runtimes: has them tried again, and gives up on one that stays broken (B-14)."""

from collections.abc import Callable

from app.worker.clock import Clock
from app.worker.loop import Loop
from app.worker.runtimes import Runtimes
from app.worker.shares import Shares

LOOK_SECONDS = 1.0
"""How often rows are looked for that wait for a runtime which is down: a claim may have been out when it went down."""
QUIET_SECONDS = 60.0


class Trials(Loop):
    """Turns when something is due. `on_change` when a runtime went down, or is asked for again."""

    name = "trials"

    def __init__(self, runtimes: Runtimes, shares: Shares, clock: Clock, *, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._runtimes = runtimes
        self._shares = shares
        self._clock = clock
        self._on_change = on_change
        runtimes.ways.on_trouble = self.wake

    def turn(self) -> float:
        """Look once."""
        if self._runtimes.look():
            self._on_change()
        shares = self._shares.all()
        now = self._clock()
        for share in shares:
            share.wake_due(now)
            share.give_back_stranded()
        due = min([self._runtimes.next_look_at, *(share.next_due for share in shares)])
        longest = LOOK_SECONDS if shares and self._runtimes.some_down else QUIET_SECONDS
        return max(0.0, min(longest, due - self._clock()))
