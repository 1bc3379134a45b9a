"""Prompts in flight are bounded over all batches of a worker, and the older batch goes first (DESIGN 9)."""

import threading

from app.worker.permits import Age, Permits

OLD: Age = (1, "batch_old")
YOUNG: Age = (2, "batch_young")


class Asker(threading.Thread):
    def __init__(self, permits: Permits, age: Age) -> None:
        super().__init__()
        self.permits, self.age = permits, age
        self.answer: bool | None = None

    def run(self) -> None:
        self.answer = self.permits.acquire(self.age)


def waiting(permits: Permits, *ages: Age) -> list[Asker]:
    """Start askers one after the other; each stands in the queue before the next comes."""
    askers = []
    for age in ages:
        before = len(permits._waiters)
        asker = Asker(permits, age)
        asker.start()
        while len(permits._waiters) == before and asker.is_alive():
            asker.join(0.001)
        askers.append(asker)
    return askers


def test_the_older_batch_gets_the_next_permit() -> None:
    permits = Permits(1)
    permits.acquire(YOUNG)
    young, old = waiting(permits, YOUNG, OLD)
    permits.release()
    old.join(5)
    assert (old.answer, young.answer) == (True, None)
    permits.release()
    young.join(5)
    assert young.answer is True


def test_a_younger_batch_must_yield_and_an_older_one_need_not() -> None:
    permits = Permits(1)
    permits.acquire(YOUNG)
    assert not permits.must_yield(YOUNG)
    (old,) = waiting(permits, OLD)
    assert permits.must_yield(YOUNG)
    permits.release()
    old.join(5)
    waiting_young = waiting(permits, YOUNG)
    assert not permits.must_yield(OLD)
    permits.release()
    waiting_young[0].join(5)


def test_a_raised_limit_lets_waiters_in_and_a_lowered_one_asks_for_permits_back() -> None:
    permits = Permits(1)
    permits.acquire(OLD)
    (waiter,) = waiting(permits, OLD)
    permits.set_limit(2)
    waiter.join(5)
    assert permits.in_use == 2
    permits.set_limit(1)
    assert permits.must_yield(OLD)
    permits.release()
    assert not permits.must_yield(OLD)


def test_abandoned_waiters_go_home_without_a_permit() -> None:
    permits = Permits(1)
    permits.acquire(OLD)
    young, old = waiting(permits, YOUNG, OLD)
    permits.abandon(YOUNG)
    young.join(5)
    assert young.answer is False
    permits.release()
    old.join(5)
    assert (old.answer, permits.in_use) == (True, 1)
