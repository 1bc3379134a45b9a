"""How a call that is not answered is tried again: 0.2 s later, doubling to 5 s, or when the server asked for it."""

import time
from collections.abc import Callable

from app.client.errors import PROXY_ALONE, TryLater
from app.client.reachability import Reachability

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0
_NOBODY_THERE = PROXY_ALONE | {None}
"""No answer at all, or that of a proxy which got none. Any other failure is of this one call, whoever else is heard."""


def pause(error: TryLater, longest: float) -> float:
    """Say for how many seconds to leave the control plane alone after a call that was given up: as it asked for it.

    `longest` at most. Who calls again at once would ask a server that said "in a minute" hundreds of times until then.
    """
    return min(max(error.retry_after or 0.0, FIRST_WAIT_SECONDS), longest)


class Patience:
    """Of one call: made right before its first try, and asked after each that ended with TryLater.

    A wait for a control plane that is away ends as soon as any call of the same client is answered again. `more` may
    give a longer deadline for one kind of failure.
    """

    def __init__(
        self,
        reachability: Reachability,
        deadline_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        more: Callable[[TryLater], float] = lambda _: 0.0,
    ) -> None:
        self._reachability = reachability
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._more = more
        self.anew()

    def anew(self) -> None:
        """Something came of the last try: the deadline and the waits begin again."""
        self._began = self._clock()
        self._wait = FIRST_WAIT_SECONDS
        self._returns = self._reachability.returns

    def waits(self, error: TryLater) -> bool:
        """Wait for the next try; False at once if it would begin after the deadline, or when the client is closed."""
        asked = error.retry_after
        seconds = self._wait if asked is None else max(asked, FIRST_WAIT_SECONDS)
        self._wait = min(2 * self._wait, LONGEST_WAIT_SECONDS)
        if self._clock() + seconds > self._began + max(self._deadline_seconds, self._more(error)):
            return False
        # Counted from before the try: an answer that another call got while this one still ran into its end counts.
        is_away = asked is None and error.status in _NOBODY_THERE
        self._reachability.wait(seconds, returns=self._returns if is_away else None)
        self._returns = self._reachability.returns
        return not self._reachability.is_closed
