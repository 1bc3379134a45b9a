"""The clock of everything that a worker measures against a lease."""

import time
from collections.abc import Callable

Clock = Callable[[], float]


def boottime() -> float:
    """Seconds on a clock that never jumps back and, on Linux, goes on while the machine sleeps.

    A laptop that slept through its leases must see at once that they are overdue; CLOCK_MONOTONIC would not tell it.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
