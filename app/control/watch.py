"""Says which pieces of control work take long.

One that hangs, on a file system that is dead, renews its lease like any other. It is not let go for that: its thread
cannot be ended, so whoever got the work next would hang beside it, and one file would take thread after thread.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)

LONG_SECONDS = 600.0
"""More than a batch of tens of gigabytes takes on a slow disk."""


@dataclass(slots=True, eq=False)
class _Piece:
    what: str
    began_at: float
    say_at: float


class Watch:
    """What the threads of one control worker are at. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: list[_Piece] = []

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Do a piece of work."""
        now = time.monotonic()
        piece = _Piece(what, now, now + LONG_SECONDS)
        with self._lock:
            self._pieces.append(piece)
        try:
            yield
        finally:
            with self._lock:
                self._pieces.remove(piece)

    def look(self) -> None:
        """Log each piece that takes long, now and again for as long as it does."""
        now = time.monotonic()
        with self._lock:
            late = [piece for piece in self._pieces if now >= piece.say_at]
        for piece in late:
            piece.say_at = now + LONG_SECONDS
            log.error("%s has taken %.0f s so far: see whether its disk answers", piece.what, now - piece.began_at)
