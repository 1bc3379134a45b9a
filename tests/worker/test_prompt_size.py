"""How many prompts are in flight: a number that is set never moves, `auto` moves the permits (R-17, B-02)."""

import itertools
import threading
from collections.abc import Callable

import pytest

from app.domain.runtimes import RuntimeLoad
from app.worker.load_watch import LoadWatch
from app.worker.permits import Permits
from app.worker.prompt_size import PromptSize
from app.worker.sizing import START, start_size
from tests.worker.units import Clock

LONG_AGO = float("-inf")
"""When a row began that says nothing of how long rows take now."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run_rows(size: PromptSize, clock: Clock, *, rows: int, per_second: Callable[[], float]) -> None:
    for _ in range(rows):
        clock.now += 1 / per_second()
        size.row_done(LONG_AGO)


def test_a_number_stays_whatever_the_runtime_does(clock: Clock) -> None:
    """B-03."""
    permits = Permits(1)
    size = PromptSize(permits, clock, fixed=5)
    run_rows(size, clock, rows=5000, per_second=lambda: 1000)
    for _ in range(10):
        size.refused()
        assert not size.row_done(LONG_AGO)
        assert not size.loaded(RuntimeLoad(5, 0), 5)
        assert not size.loaded(RuntimeLoad(1, 400), 5)
    size.starved()
    assert not size.runtimes_changed(64)
    assert permits.limit == 5
    assert not size.is_auto


def test_auto_moves_the_permits(clock: Clock) -> None:
    permits = Permits(1)
    size = PromptSize(permits, clock, fixed=None)
    assert permits.limit == START
    run_rows(size, clock, rows=2000, per_second=lambda: 100 * permits.limit)
    assert permits.limit > 2 * START


def test_slots_that_the_runtimes_tell_are_taken_over_and_a_second_time_change_nothing(clock: Clock) -> None:
    permits = Permits(1)
    size = PromptSize(permits, clock, fixed=None)
    assert size.runtimes_changed(16)
    assert permits.limit == 18
    assert not size.runtimes_changed(16)
    assert size.runtimes_changed(None)
    assert permits.limit == START


class Gauges:
    """Runtimes that tell their load, and count how often they were asked."""

    def __init__(self, load: RuntimeLoad | None) -> None:
        self._load = load
        self.asked = 0
        self.refusals = 0

    def load(self) -> RuntimeLoad | None:
        self.asked += 1
        return self._load


def watch_over(gauges: Gauges, permits: Permits, size: PromptSize, resized: threading.Event) -> LoadWatch:
    """A watch whose clock goes on by half a second at each look."""
    ticks = itertools.count(step=0.25)
    return LoadWatch(gauges, permits, size, lambda: next(ticks), on_resized=resized.set)


def test_gauges_are_read_only_while_rows_run_whose_number_sizes_itself(clock: Clock) -> None:
    permits, gauges, resized = Permits(1), Gauges(RuntimeLoad(1, 0)), threading.Event()
    watch = watch_over(gauges, permits, PromptSize(permits, clock, fixed=None), resized)
    watch.turn()
    assert gauges.asked == 0
    permits.acquire((1, "batch"))
    watch.turn()
    assert gauges.asked == 1
    fixed = watch_over(gauges, permits, PromptSize(permits, clock, fixed=4), resized)
    fixed.turn()
    assert gauges.asked == 1


def test_a_long_queue_at_the_runtime_lowers_the_permits(clock: Clock) -> None:
    permits, gauges, resized = Permits(1), Gauges(RuntimeLoad(2, 6)), threading.Event()
    watch = watch_over(gauges, permits, PromptSize(permits, clock, fixed=None), resized)
    for _ in range(START):
        permits.acquire((1, "batch"))
    while not resized.is_set():
        watch.turn()
        assert gauges.asked < 10
    assert permits.limit == 3


def test_refusals_take_a_quarter_off_once_a_row_was_answered(clock: Clock) -> None:
    permits, gauges, resized = Permits(1), Gauges(None), threading.Event()
    size = PromptSize(permits, clock, fixed=None)
    watch = watch_over(gauges, permits, size, resized)
    run_rows(size, clock, rows=START, per_second=lambda: 10)
    permits.acquire((1, "batch"))
    gauges.refusals = 3
    watch.turn()
    assert permits.limit == START
    assert size.row_done(LONG_AGO)
    assert permits.limit == 6
    run_rows(size, clock, rows=START, per_second=lambda: 10)
    watch.turn()
    assert not size.row_done(LONG_AGO)


def test_runtimes_without_gauges_change_nothing(clock: Clock) -> None:
    permits, gauges, resized = Permits(1), Gauges(None), threading.Event()
    watch = watch_over(gauges, permits, PromptSize(permits, clock, fixed=None), resized)
    permits.acquire((1, "batch"))
    for _ in range(10):
        watch.turn()
    assert permits.limit == START
    assert not resized.is_set()


class Slow(Permits):
    """Takes the first limit it is given only when another one was, or is kept waiting."""

    def __init__(self) -> None:
        super().__init__(1)
        self.reached = threading.Event()
        self.other_set = threading.Event()

    def set_limit(self, limit: int) -> None:
        if limit == start_size(16):
            self.reached.set()
            self.other_set.wait(0.3)
        super().set_limit(limit)
        if limit == start_size(32):
            self.other_set.set()


def test_of_two_sizes_that_come_at_once_the_later_one_stays(clock: Clock) -> None:
    permits = Slow()
    size = PromptSize(permits, clock, fixed=None)
    first = threading.Thread(target=size.runtimes_changed, args=(16,))
    first.start()
    assert permits.reached.wait(30)
    second = threading.Thread(target=size.runtimes_changed, args=(32,))
    second.start()
    for thread in (first, second):
        thread.join(30)
    assert permits.limit == start_size(32)
