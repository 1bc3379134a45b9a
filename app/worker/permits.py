"""How many prompts this worker keeps in flight, over all its batches; the older batch first (DESIGN 9)."""

import heapq
import itertools
import threading

Age = tuple[int, str]
"""When a batch was created, and its id: what is smaller is older."""


class _Waiter:
    __slots__ = ("age", "event", "granted", "serial")

    def __init__(self, age: Age, serial: int) -> None:
        self.age = age
        self.serial = serial
        self.event = threading.Event()
        self.granted = False

    def __lt__(self, other: "_Waiter") -> bool:
        return (self.age, self.serial) < (other.age, other.serial)


class Permits:
    """A counting semaphore with an order and a limit that may change while it is in use."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._in_use = 0
        self._waiters: list[_Waiter] = []
        self._serial = itertools.count()

    @property
    def limit(self) -> int:
        """Prompts that may be in flight."""
        return self._limit

    @property
    def in_use(self) -> int:
        """Prompts that are in flight."""
        return self._in_use

    def set_limit(self, limit: int) -> None:
        """Raise or lower the limit; what is in flight above a lowered one ends by itself."""
        with self._lock:
            self._limit = limit
            self._grant()

    def acquire(self, age: Age) -> bool:
        """Wait for a permit. False: `abandon` was called for this batch."""
        with self._lock:
            if self._in_use < self._limit and not (self._waiters and self._waiters[0].age < age):
                self._in_use += 1
                return True
            waiter = _Waiter(age, next(self._serial))
            heapq.heappush(self._waiters, waiter)
        waiter.event.wait()
        return waiter.granted

    def release(self) -> None:
        """Give a permit back."""
        with self._lock:
            self._in_use -= 1
            self._grant()

    def must_yield(self, age: Age) -> bool:
        """Tell the holder of a permit to give it back after its row: an older batch waits, or the limit fell.

        Read without the lock, once a row: an answer that is one row late does no harm.
        """
        if self._in_use > self._limit:
            return True
        waiters = self._waiters
        try:
            return bool(waiters) and waiters[0].age < age
        except IndexError:  # the last waiter left in between
            return False

    def abandon(self, age: Age) -> None:
        """Send every waiter of one batch home."""
        with self._lock:
            leaving = [waiter for waiter in self._waiters if waiter.age == age]
            self._waiters = [waiter for waiter in self._waiters if waiter.age != age]
            heapq.heapify(self._waiters)
        for waiter in leaving:
            waiter.event.set()

    def _grant(self) -> None:
        while self._waiters and self._in_use < self._limit:
            waiter = heapq.heappop(self._waiters)
            self._in_use += 1
            waiter.granted = True
            waiter.event.set()
