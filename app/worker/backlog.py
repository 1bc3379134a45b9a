"""Bounds what a share holds in memory of rows that nobody has stored yet."""

import threading
from typing import Protocol

MAX_BYTES = 64 * 1024 * 1024
_REASON = "too much is unsent"


class Rows(Protocol):
    """The rows that may be held."""

    def hold(self, reason: str) -> None:
        """Start no row until `let_go` with the same reason."""

    def let_go(self, reason: str) -> None:
        """Go on."""


class Backlog:
    """Counts bytes of finished rows; above the bound the queue starts no row until a hand-in was answered."""

    def __init__(self, rows: Rows, max_bytes: int = MAX_BYTES) -> None:
        self._rows = rows
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes = 0

    def add(self, count: int) -> None:
        """A row was finished."""
        with self._lock:
            self._bytes += count
            if self._bytes > self._max_bytes:
                self._rows.hold(_REASON)

    def subtract(self, count: int) -> None:
        """Rows were stored, or thrown away."""
        with self._lock:
            self._bytes -= count
            if self._bytes <= self._max_bytes:
                self._rows.let_go(_REASON)
