"""Whether the control plane answers: said in the log, and known to all calls of a client.

It is logged at the first failure, then once a minute (BK-05), and no oftener where it comes and goes: a server that is
slow answers one call in time and not the next. The first call that is answered again has all others go on that wait
between two tries: after a long outage each would else sleep out the longest of its waits.
"""

import threading
import time
from collections.abc import Callable

import structlog

REMIND_SECONDS = 60.0
log = structlog.get_logger("gpuyard.client")


class Reachability:
    """Shared by all calls of a client, so that ten waiting threads write one line and not ten."""

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._changed = threading.Condition()
        self._since: float | None = None
        self._said_at = float("-inf")
        self._is_said = False
        self._returns = 0
        self._closed = False

    @property
    def silent_seconds(self) -> float:
        """How long calls have got no usable answer; 0 while they do."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    @property
    def returns(self) -> int:
        """How often it was silent and answered again."""
        return self._returns

    @property
    def is_closed(self) -> bool:
        """Whether nobody is to call any more."""
        return self._closed

    def failed(self, why: str) -> None:
        """A call got no usable answer."""
        now = self._clock()
        with self._changed:
            self._since = now if self._since is None else self._since
            if now - self._said_at < REMIND_SECONDS:
                return
            first, self._is_said, self._said_at = not self._is_said, True, now
            silent = now - self._since
        log.warning("worker.unreachable", server=self._server, why=why, first=first, for_seconds=round(silent, 1))

    def answered(self) -> None:
        """A call was answered, whatever the answer."""
        if self._since is None:
            return
        with self._changed:
            since, self._since = self._since, None
            was_said, self._is_said = self._is_said, False
            if since is not None:
                self._returns += 1
                self._changed.notify_all()
        if since is not None and was_said:
            log.info("worker.reachable", server=self._server, after_seconds=round(self._clock() - since, 1))

    def wait(self, seconds: float, *, returns: int | None) -> None:
        """Wait so long, or until `close`, or until there were more returns than these (None: whatever returns)."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or returns not in {None, self._returns}, seconds)

    def close(self) -> None:
        """End all waits, those to come too."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
