"""`auto` finds what a runtime makes use of, and follows it (R-17). Simulated runtimes, a fake clock, no threads."""

import pytest

from app.domain.runtimes import RuntimeLoad
from app.worker.engine_gauges import READINGS
from app.worker.sizing import LEAST_READ_SECONDS, READ_SECONDS, START, AutoSize, start_size
from tests.worker.simulated_engine import SimulatedEngine

ENGINES = [(64, 0.05), (256, 0.2), (8, 0.1), (48, 0.05), (36, 0.2), (2, 0.5), (1, 0.5), (500, 0.4)]
CHANGED = 60.0

LONG_AGO = float("-inf")
"""When a row began that says nothing of how long rows take now."""


def share(engine: SimulatedEngine, since: float, until: float) -> float:
    """The part of the engine's limit that came out."""
    return engine.rate(since, until) * engine.latency / engine.slots


@pytest.mark.parametrize("spread", [0.0, 0.5, 0.9], ids=["equal rows", "rows that differ", "rows of any length"])
@pytest.mark.parametrize(("slots", "latency"), ENGINES)
def test_it_fills_the_runtime_and_queues_at_most_one_engine_full_after_the_ramp(
    slots: int, latency: float, spread: float
) -> None:
    end = max(20.0, 500 * latency)
    engine = SimulatedEngine(slots, latency, spread).run(seconds=end)
    assert share(engine, end / 2, end) >= (0.93 if slots > 2 else 0.88)
    assert engine.most_queued(end / 2) <= max(slots, 3)


@pytest.mark.parametrize(
    ("slots", "latency", "rows", "least"),
    [(64, 0.05, 40_000, 0.96), (256, 0.2, 40_000, 0.92), (8, 0.1, 4_000, 0.97), (8, 0.1, 1_000, 0.96)],
)
def test_the_whole_run_is_fast_the_search_included(slots: int, latency: float, rows: int, least: float) -> None:
    """P4 of the targets, but for the time that a real worker needs."""
    engine = SimulatedEngine(slots, latency).run(seconds=rows * latency / slots)
    assert share(engine, 0, engine.now) >= least
    assert engine.most_queued(6.0) <= slots


@pytest.mark.parametrize(("slots", "latency"), [(64, 0.05), (256, 0.2), (8, 0.1)])
def test_a_worker_whose_machine_is_busy_and_stalls_does_not_take_that_for_room(slots: int, latency: float) -> None:
    """Half of a core for the answers of the fastest, and some hundredths of a second away about once a second."""
    engines = [
        SimulatedEngine(slots, latency, gauged=True, row_cost=0.00066, stall=0.05, seed=seed).run(seconds=14)
        for seed in range(10)
    ]
    assert sorted(engine.most_queued(5) for engine in engines)[-2] <= slots


@pytest.mark.parametrize("seed", [11, 47, 50])
def test_a_stall_while_it_looks_does_not_keep_it_small(seed: int) -> None:
    """Some machine stood still while the first rows were counted; the rows' own times and the gauges knew better."""
    engine = SimulatedEngine(256, 0.2, gauged=True, row_cost=0.0004, stall=0.05, seed=seed).run(seconds=14)
    assert share(engine, 7, 14) >= 0.9
    assert engine.most_queued(7) <= 256


@pytest.mark.parametrize("seed", [55, 56])
def test_rows_that_piled_up_behind_a_stall_are_no_gain_where_the_gauges_say_that_rows_wait(seed: int) -> None:
    engine = SimulatedEngine(256, 0.2, gauged=True, row_cost=0.00066, stall=0.05, seed=seed).run(seconds=14)
    assert engine.most_queued(5) <= 256


@pytest.mark.parametrize("gauged", [False, True], ids=["by the rate", "with gauges"])
@pytest.mark.parametrize(("before", "after"), [(64, 16), (256, 32), (16, 64), (64, 256)])
def test_it_follows_an_engine_whose_slots_change(before: int, after: int, *, gauged: bool) -> None:
    """Also within a bound of rows: what an engine of `after` slots works off in 50 seconds of rows of 0.2."""
    engine = SimulatedEngine(before, 0.2, 0.5, slots_at={CHANGED: after}, gauged=gauged).run(seconds=CHANGED + 80)
    found = CHANGED + 55
    assert share(engine, found, engine.now) >= 0.93
    assert engine.most_queued(found) <= after


def test_gauges_show_a_longer_queue_within_seconds() -> None:
    """Twice the readings: those of a trial of less, which may be under way, are thrown away with it."""
    engine = SimulatedEngine(256, 0.2, 0.5, slots_at={CHANGED: 32}, gauged=True).run(seconds=CHANGED + 24)
    assert engine.most_queued(CHANGED + 2 * READINGS + 8) <= 32


def test_gauges_show_room_within_seconds() -> None:
    engine = SimulatedEngine(16, 0.2, 0.5, slots_at={CHANGED: 64}, gauged=True).run(seconds=CHANGED + 25)
    assert share(engine, CHANGED + 15, engine.now) >= 0.9


def test_gauges_find_the_size_for_rows_of_minutes_that_give_no_rate_yet() -> None:
    engine = SimulatedEngine(256, 120.0, 0.5, gauged=True).run(seconds=120)
    assert 256 <= engine.size.size <= 320


def test_told_that_the_engine_may_be_another_it_looks_at_once() -> None:
    engine = SimulatedEngine(16, 0.2, 0.5).run(seconds=CHANGED)
    engine.slots = 64
    engine.size.look_again()
    engine.run(seconds=CHANGED + 15)
    assert share(engine, CHANGED + 8, engine.now) >= 0.9


@pytest.mark.parametrize("gauged", [False, True], ids=["by the rate", "with gauges"])
def test_it_makes_room_when_others_use_the_engine_too(*, gauged: bool) -> None:
    engines = [
        SimulatedEngine(64, 0.2, 0.5, others_at={CHANGED: 48}, gauged=gauged, seed=seed).run(seconds=CHANGED + 60)
        for seed in (1, 2, 3)
    ]
    for engine in engines:
        assert engine.rate(CHANGED + 20, engine.now) * engine.latency >= (16 if gauged else 24)
    # In one of some runs chance says, just then, that more would pay.
    assert sorted(engine.most_queued(CHANGED + 40) for engine in engines)[1] <= (16 if gauged else 64)


@pytest.mark.parametrize(("slots", "bound"), [(64, 16), (16, 4), (2, 4), (8, 0)])
def test_it_obeys_an_engine_that_refuses(slots: int, bound: int) -> None:
    """Refusals stay rare: each is a row that has to come again."""
    engine = SimulatedEngine(slots, 0.2, 0.5, queue_bound=bound).run(seconds=120)
    assert share(engine, 60, 120) >= 0.8
    late = [size for at, size in engine.sizes if at >= 60]
    assert max(late, default=0) <= 1.5 * (slots + bound)
    assert engine.refusals <= 0.05 * len(engine.ends) + START


def test_a_refusal_takes_a_quarter_off_once_for_the_rows_that_were_sent_together() -> None:
    size = AutoSize(lambda: 0.0)
    for _ in range(START + 1):
        size.row_done(LONG_AGO)
    size.refused()
    assert size.row_done(LONG_AGO) == 6
    for _ in range(5):
        size.refused()
        assert size.row_done(LONG_AGO) is None


def test_refusals_alone_change_nothing() -> None:
    """A runtime that loads its model refuses everything: that says nothing about how much it will take."""
    size = AutoSize(lambda: 0.0)
    for _ in range(1000):
        size.refused()
    assert size.size == START


def test_known_slots_need_no_search_and_are_never_exceeded() -> None:
    engine = SimulatedEngine(64, 0.05, known_slots=64).run(seconds=30)
    assert engine.sizes[0] == (0.0, 72)
    assert max(size for _, size in engine.sizes) == 72
    assert share(engine, 1, 30) >= 0.97


@pytest.mark.parametrize(("slots", "size"), [(None, 8), (0, 8), (1, 2), (64, 72), (10_000, 1024)])
def test_it_starts_at_eight_or_at_an_eighth_more_than_the_known_slots(slots: int | None, size: int) -> None:
    assert start_size(slots) == size


def test_a_window_in_which_rows_ran_out_decides_nothing() -> None:
    now = 0.0
    size = AutoSize(lambda: now)
    for _ in range(1000):
        now += 0.01
        size.row_done(LONG_AGO)
        size.starved()
    assert size.size == START


def test_rows_that_end_together_are_no_queue() -> None:
    """One reading in between shows all rows waiting for the next step of an engine that has room for them."""
    size = AutoSize(lambda: 0.0)
    for _ in range(20):
        assert size.loaded(RuntimeLoad(0, 8), 8) is None
        assert size.loaded(RuntimeLoad(7, 0), 8) is None
    assert size.size == START


def test_how_quick_the_rows_of_other_runtimes_were_says_nothing() -> None:
    now = 0.0
    size = AutoSize(lambda: now)
    for _ in range(100):
        now += 0.01
        size.row_done(now - 0.05)
    assert size.seconds_between_readings == LEAST_READ_SECONDS
    size.restart(None)
    assert size.seconds_between_readings == READ_SECONDS
