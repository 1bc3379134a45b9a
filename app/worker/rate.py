"""How many rows a second a share finishes, measured over the last seconds."""

import threading
from collections import deque

from app.worker.clock import Clock

BUCKET_SECONDS = 0.25
BUCKETS = 8


class RateMeter:
    """Counts into quarters of a second and looks two seconds back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._buckets: deque[list[float]] = deque()

    def count(self) -> None:
        """One row was finished."""
        bucket = self._clock() // BUCKET_SECONDS
        with self._lock:
            if self._buckets and self._buckets[-1][0] == bucket:
                self._buckets[-1][1] += 1
            else:
                self._buckets.append([bucket, 1])
                while self._buckets[0][0] <= bucket - BUCKETS:
                    self._buckets.popleft()

    @property
    def is_young(self) -> bool:
        """Whether less than it looks back has passed: what it tells still grows."""
        return self._clock() - self._started < BUCKETS * BUCKET_SECONDS

    def per_second(self) -> float:
        """Rows a second over the last two, or over the whole life when that is shorter."""
        now = self._clock()
        oldest = now // BUCKET_SECONDS - BUCKETS + 1
        with self._lock:
            rows = sum(count for bucket, count in self._buckets if bucket >= oldest)
        # The newest bucket is not over: with eight whole ones the rate would be told a sixteenth too low.
        return rows / max(BUCKET_SECONDS, min(now - oldest * BUCKET_SECONDS, now - self._started))
