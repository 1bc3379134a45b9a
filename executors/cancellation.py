"""Cancel: one token for all rows of a job; any thread may cancel it, and what waits on the network ends at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RowCancelled(Exception):
    """The row was cut because its token was cancelled. It has no reply and must not be stored."""


class CancelToken:
    """A flag with watchers. Cheap enough to be watched by every row in flight."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._watchers: dict[object, Callable[[], None]] = {}

    @property
    def is_cancelled(self) -> bool:
        """Tell whether somebody cancelled."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Set the flag and run every watcher once, in the caller's thread. Calling again does nothing."""
        with self._lock:
            self._event.set()
            watchers, self._watchers = self._watchers, {}
            # Under the lock: when `watching` has ended, its watcher is not running and never will, so a connection
            # that went back to its pool cannot be cut by the cancel of the row before.
            for watcher in watchers.values():
                watcher()

    def raise_if_cancelled(self) -> None:
        """Raise RowCancelled once the flag is set."""
        if self._event.is_set():
            raise RowCancelled

    def sleep(self, seconds: float) -> None:
        """Sleep, and raise RowCancelled as soon as the flag is set."""
        if self._event.wait(seconds):
            raise RowCancelled

    @contextmanager
    def watching(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Run `watcher` at a cancel while the block lasts. It must be short, must not raise, must not use the token.

        Raises RowCancelled when the flag is set already.
        """
        key = self.watch(watcher)
        try:
            yield
        finally:
            self.unwatch(key)

    def watch(self, watcher: Callable[[], None]) -> object:
        """The same until `unwatch` is given what this gives, for what no block encloses."""
        key = object()
        with self._lock:
            self.raise_if_cancelled()
            self._watchers[key] = watcher
        return key

    def unwatch(self, key: object) -> None:
        """Watch no more. Afterwards the watcher is not running and never will."""
        with self._lock:
            self._watchers.pop(key, None)
