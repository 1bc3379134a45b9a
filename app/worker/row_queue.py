"""The rows of one batch on this worker that are not started yet. Lanes take from it, the share fills it."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class RowQueue(Generic[ItemT]):
    """A queue that may be held, for one reason or several, and that tells when it runs low."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._items: deque[ItemT] = deque()
        self._holds: set[str] = set()
        self._closed = False
        self._low = 0

    def __len__(self) -> int:
        """Count what waits."""
        return len(self._items)

    def put(self, items: Iterable[ItemT]) -> None:
        """Add rows. After `close` they are thrown away."""
        with self._lock:
            if self._closed:
                return
            before = len(self._items)
            self._items.extend(items)
            self._filled.notify(len(self._items) - before)

    def take(self) -> ItemT | None:
        """Take a row now, or None: there is none, or rows are held."""
        with self._lock:
            if not self._items or self._holds:
                return None
            item = self._items.popleft()
            if len(self._items) <= self._low:
                self._drained.notify_all()
            return item

    def wait(self) -> bool:
        """Wait until there is something to take. False once the queue is closed."""
        with self._lock:
            while not self._closed and (self._holds or not self._items):
                self._filled.wait()
            return not self._closed

    def wait_low(self, low: int, timeout: float) -> None:
        """Wait until at most `low` rows are left, `nudge`, or `timeout` seconds."""
        with self._lock:
            self._low = low
            if len(self._items) > low and not self._closed:
                self._drained.wait(timeout)

    def nudge(self) -> None:
        """Wake who waits for the end of the rows."""
        with self._lock:
            self._drained.notify_all()

    def hold(self, reason: str) -> None:
        """Start no row until each reason given was taken back."""
        with self._lock:
            self._holds.add(reason)

    def let_go(self, reason: str) -> None:
        """Take a reason back."""
        with self._lock:
            self._holds.discard(reason)
            if not self._holds:
                self._filled.notify_all()

    def discard(self, doomed: Callable[[ItemT], bool]) -> list[ItemT]:
        """Take out the rows that are `doomed` and give them."""
        with self._lock:
            gone = [item for item in self._items if doomed(item)]
            if gone:
                self._items = deque(item for item in self._items if not doomed(item))
            self._drained.notify_all()
            return gone

    def close(self) -> None:
        """End: lanes go home."""
        with self._lock:
            self._closed = True
            self._items.clear()
            self._filled.notify_all()
            self._drained.notify_all()
