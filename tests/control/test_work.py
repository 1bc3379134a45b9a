"""One ring lets one thread look; a ring that finds everybody busy is not lost."""

import threading
import time

from app.control.work import WorkBell

LONG = 20.0


class Sleepers:
    """Threads that wait for the bell once each."""

    def __init__(self, bell: WorkBell, count: int) -> None:
        self.woken = threading.Semaphore(0)
        self._bell = bell
        self.threads = [threading.Thread(target=self._sleep, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _sleep(self) -> None:
        self._bell.wait(LONG)
        self.woken.release()


def test_one_ring_wakes_one_thread() -> None:
    bell = WorkBell(3)
    sleepers = Sleepers(bell, 3)
    bell.ring()
    assert sleepers.woken.acquire(timeout=5)
    assert not sleepers.woken.acquire(timeout=0.2)
    bell.ring(2)
    assert sleepers.woken.acquire(timeout=5)
    assert sleepers.woken.acquire(timeout=5)


def test_a_ring_that_nobody_waits_for_is_heard_by_the_next_who_does() -> None:
    bell = WorkBell(2)
    bell.ring()
    begun = time.monotonic()
    bell.wait(LONG)
    assert time.monotonic() - begun < LONG / 2


def test_rings_are_kept_for_as_many_as_there_are_threads() -> None:
    bell = WorkBell(1)
    bell.ring(5)
    bell.wait(0)
    begun = time.monotonic()
    bell.wait(0.05)
    assert time.monotonic() - begun >= 0.05
