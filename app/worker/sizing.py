"""`max_concurrent_prompts = "auto"`: find the number in flight that a runtime makes use of (R-17, PERFORMANCE 1).

While the rate of a window grows by 15 % or more, the number doubles; when it does not, it goes back to an eighth more
than the last number that paid, and stays. The eighth keeps the runtime's queue from running dry between two answers.
"""

import math
import threading

from app.worker.clock import Clock

START = 8
CEILING = 1024
WORTH_IT = 1.15
HEADROOM = 1.125
WINDOW_ROUNDS = 2
"""A window is this many answers for each prompt in flight, so that it means the same at 2 ms and at 20 s a row."""
WINDOW_ROWS = 24
"""And at least so many: fewer say little about rows of different lengths."""
WINDOW_SECONDS = 0.3


def start_size(known_slots: int | None) -> int:
    """Where to begin: at what the runtimes say they work on at once, plus an eighth, else at eight."""
    return min(CEILING, math.ceil(known_slots * HEADROOM)) if known_slots else START


class AutoSize:
    """Told of each finished row, says when the number in flight should change. Thread-safe."""

    def __init__(self, clock: Clock, *, known_slots: int | None = None, ceiling: int = CEILING) -> None:
        self._clock = clock
        self._ceiling = ceiling
        self._lock = threading.Lock()
        self.restart(known_slots)

    def restart(self, known_slots: int | None) -> int:
        """Begin anew, as when the runtimes changed; known slots need no search. Gives the size."""
        with self._lock:
            self.size = start_size(known_slots)
            self._settled = bool(known_slots)
            self._paid: tuple[int, float] | None = None
            self._new_window(settle=self.size)
            return self.size

    def row_done(self) -> int | None:
        """Count a row. Gives a new size, or None."""
        if self._settled:
            return None
        with self._lock:
            if self._settle:
                self._settle -= 1
                if not self._settle:
                    self._since = self._clock()
                return None
            self._rows += 1
            if self._rows < max(WINDOW_ROWS, WINDOW_ROUNDS * self.size):
                return None
            elapsed = self._clock() - self._since
            if elapsed < WINDOW_SECONDS:
                return None
            return self._judge(self._rows / elapsed)

    def starved(self) -> None:
        """Rows ran out: what was measured so far says nothing about the runtime."""
        if self._settled:
            return
        with self._lock:
            self._new_window(settle=self.size)

    def _judge(self, rate: float) -> int | None:
        if self._paid is None or rate >= WORTH_IT * self._paid[1]:
            self._paid = (self.size, rate)
            wanted = min(2 * self.size, self._ceiling)
        else:
            wanted = min(math.ceil(self._paid[0] * HEADROOM), self._ceiling)
            self._settled = True
        self._settled = self._settled or wanted == self.size
        if wanted == self.size:
            return None
        self.size = wanted
        self._new_window(settle=wanted)
        return wanted

    def _new_window(self, *, settle: int) -> None:
        self._settle = settle
        self._rows = 0
        self._since = 0.0
