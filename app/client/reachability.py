"""Says in the log that the control plane does not answer: at the first failure, then once a minute (BK-05)."""

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
        self._lock = threading.Lock()
        self._since: float | None = None
        self._said = 0.0

    @property
    def silent_seconds(self) -> float:
        """How long calls have got no usable answer; 0 while they do."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    def failed(self, why: str) -> None:
        """A call got no usable answer."""
        now = self._clock()
        with self._lock:
            first = self._since is None
            if self._since is None:
                self._since = now
            elif now - self._said < REMIND_SECONDS:
                return
            self._said = now
            silent = now - self._since
        log.warning("worker.unreachable", server=self._server, why=why, first=first, for_seconds=round(silent, 1))

    def answered(self) -> None:
        """A call was answered, whatever the answer."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            log.info("worker.reachable", server=self._server, after_seconds=round(self._clock() - since, 1))
