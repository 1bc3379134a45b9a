"""How long the machine itself stood still, and how crowded it was: bounds of time are for the product's own time."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

NAP_SECONDS = 0.02
STALL_SECONDS = 0.1
"""A nap that lasts this much too long was a stall. Shorter ones are how a busy machine shares itself out."""
CROWD = 2.0
"""So many processes a core may want to run before a bound of time is stretched; the run alone comes to as much."""
PRESSURE = Path("/proc/pressure/cpu")


class Stalls:
    """Use it as a context; it watches inside."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        """Begin and end, in seconds of the wall clock."""
        self.loads: list[tuple[float, float]] = []
        """By seconds of the wall clock: the average of a minute of processes a core that want to run."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = time.monotonic()
        self._waited = 0.0
        self._pressure = 0.0

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._began, self._waited = time.monotonic(), _waited_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no more."""
        self._ending.set()
        self._thread.join()
        self._pressure = (_waited_seconds() - self._waited) / (time.monotonic() - self._began)

    @property
    def pressure(self) -> float:
        """The share of the time in which something waited for a processor; 0 where the system does not say."""
        return self._pressure

    @property
    def longest(self) -> float:
        """Seconds."""
        return max((end - began for began, end in self.found), default=0.0)

    @property
    def seconds(self) -> float:
        """All of them together."""
        return sum(end - began for began, end in self.found)

    def between(self, began: float, ended: float) -> float:
        """How many seconds of a span of the wall clock were stalls."""
        overlaps = [min(end, ended) - max(start, began) for start, end in self.found]
        return sum(overlap for overlap in overlaps if overlap > 0)

    @property
    def load(self) -> float:
        """The highest load a core."""
        return max((load for _, load in self.loads), default=0.0)

    def stretch(self, at: float) -> float:
        """Give by how much a bound of time is longer then: with twice the crowd everybody gets half the processor."""
        before = [load for seen_at, load in self.loads if seen_at <= at + 1]
        return max(1.0, before[-1] / CROWD) if before else 1.0

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._ending.wait(NAP_SECONDS):
            now = time.monotonic()
            late = now - before - NAP_SECONDS
            wall = time.time()
            if not self.loads or wall - self.loads[-1][0] >= 1:
                self.loads.append((wall, os.getloadavg()[0] / (os.cpu_count() or 1)))
            if late > STALL_SECONDS:
                self.found.append((wall - late, wall))
            before = now


def _waited_seconds() -> float:
    """For how long, since the machine's start, something was ready and had no processor (Linux, PSI)."""
    with suppress(OSError, ValueError, IndexError):
        return int(PRESSURE.read_text().partition("total=")[2].split()[0]) / 1e6
    return 0.0
