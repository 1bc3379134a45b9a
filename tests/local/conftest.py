"""Waiting with a bound, and a look at processes."""

import time
from collections.abc import Callable

import psutil
import pytest


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition, at most so long."""

    def wait(condition: Callable[[], object], *, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come true"
            time.sleep(0.02)

    return wait


@pytest.fixture
def lives() -> Callable[[int], bool]:
    """Whether a process runs; one that ended and was not waited for does not."""

    def look(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return look
