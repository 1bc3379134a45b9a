"""How often workers hand in: less often while more arrives than a process stores in its stride (PROTOCOL 5, 7)."""

import threading
import time
from collections.abc import Callable

HAND_INS_PER_SECOND = 50.0
"""What one API process is to get, about half of what it can store: claims and beats need their share."""
WINDOW_SECONDS = 5.0
LONGEST_SECONDS = 30.0
"""A lost worker runs again what it had not handed in, so there is an end to that."""


class Pace:
    """Counts the hand-ins of a process. Thread-safe; `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._count = 0
        self._asked: float | None = None

    def hand_in(self, own_seconds: float) -> float | None:
        """Count one, and say after how many seconds its worker is to send the next; None: after `own_seconds`.

        Those that are there send as often as they were asked to, so the rate of a window tells how many there are.
        """
        with self._lock:
            self._count += 1
            elapsed = self._clock() - self._since
            if elapsed >= WINDOW_SECONDS:
                share = self._count / elapsed / HAND_INS_PER_SECOND
                wanted = min((self._asked or own_seconds) * share, LONGEST_SECONDS)
                self._asked = wanted if wanted > own_seconds else None
                self._since += elapsed
                self._count = 0
            return self._asked
