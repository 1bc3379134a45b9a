"""Rows that are not started yet: taken by lanes, held for reasons, grouped for their runtime, thrown away at an end."""

import threading
import time

import pytest

from app.worker.judging import MAX_PEACE_SECONDS
from app.worker.row_queue import RowQueue
from app.worker.units import Run
from app.worker.verdicts import Verdict
from tests.fakes.steered_executor import SteeredExecutor
from tests.worker.units import Grouping, Parallel, queue_of, runtimes_of, shard, unit


def numbers(runs: list[Run | None]) -> list[int | None]:
    return [run and run.unit.row.number for run in runs]


def all_of(queue: RowQueue) -> list[int]:
    """Run everything, one row after the other."""
    order = []
    run = queue.take()
    while run is not None:
        order.append(run.unit.row.number)
        run = queue.next(run)
    return order


def test_rows_come_out_in_order() -> None:
    queue = queue_of()
    queue.put([unit(1), unit(2)])
    queue.put([unit(3)])
    assert numbers([queue.take() for _ in range(4)]) == [1, 2, 3, None]


def test_held_rows_wait_until_every_reason_is_taken_back() -> None:
    queue = queue_of()
    queue.put([unit(1)])
    queue.hold("a")
    queue.hold("b")
    queue.let_go("a")
    assert queue.take() is None
    queue.let_go("b")
    assert numbers([queue.take()]) == [1]


def test_a_lane_wakes_for_a_row_and_for_the_end() -> None:
    queue = queue_of()
    woke: list[bool] = []
    lanes = [threading.Thread(target=lambda: woke.append(queue.wait())) for _ in range(2)]
    lanes[0].start()
    queue.put([unit(1)])
    lanes[0].join(5)
    queue.take()
    lanes[1].start()
    queue.close()
    lanes[1].join(5)
    assert woke == [True, False]


def test_whoever_waits_for_few_rows_wakes_when_they_are_few() -> None:
    queue = queue_of()
    queue.put(unit(number) for number in range(10))
    waiter = threading.Thread(target=queue.wait_low, args=(3, 30))
    waiter.start()
    while len(queue) > 3:
        queue.take()
    waiter.join(5)
    assert not waiter.is_alive()


def test_a_pause_is_ended_by_a_nudge_and_by_no_row_that_starts() -> None:
    queue = queue_of()
    queue.put(unit(number) for number in range(10))
    queue.wait_low(10, 0)  # from here on each row that starts is news for who waits for few
    pausing = threading.Thread(target=queue.pause, args=(30,), daemon=True)
    pausing.start()
    while len(queue):
        queue.take()
        pausing.join(0.02)
    assert pausing.is_alive()
    for _ in range(100):
        if pausing.is_alive():
            queue.nudge()
            pausing.join(0.1)
    assert not pausing.is_alive()


def test_discarded_rows_are_gone_and_the_rest_stays() -> None:
    queue = queue_of()
    queue.put(unit(number) for number in range(6))
    queue.discard(lambda unit: unit.row.number % 2 == 0)
    assert numbers([queue.take() for _ in range(4)]) == [1, 3, 5, None]


def test_nothing_enters_a_closed_queue() -> None:
    queue = queue_of()
    queue.close()
    queue.put([unit(1)])
    queue.again(unit(2), Verdict.FIRST)
    assert (len(queue), queue.take(), queue.wait()) == (0, None, False)


class TestGroups:
    def test_of_one_kind_run_to_their_end_before_the_next(self) -> None:
        queue = queue_of(Grouping())
        queue.put(unit(number, options=number % 3) for number in range(9))
        assert all_of(queue) == [0, 3, 6, 1, 4, 7, 2, 5, 8]

    def test_do_not_mix_in_flight(self) -> None:
        queue = queue_of(Grouping())
        queue.put([unit(1, options=1), unit(2, options=2), unit(3, options=1)])
        first, second = queue.take(), queue.take()
        assert numbers([first, second, queue.take()]) == [1, 3, None]
        assert first is not None
        assert second is not None
        assert queue.next(first) is None
        assert numbers([queue.next(second)]) == [2]

    def test_run_side_by_side_where_nothing_has_to_be_loaded(self) -> None:
        queue = queue_of(Parallel())
        queue.put([unit(1, options=1), unit(2, options=2), unit(3, options=1)])
        assert sorted(numbers([queue.take() for _ in range(3)])) == [1, 2, 3]  # type: ignore[type-var]

    def test_in_great_number_cost_a_row_no_more(self) -> None:
        def seconds(count: int) -> float:
            queue = queue_of(Grouping())
            queue.put(unit(number, options=number) for number in range(count))
            start = time.thread_time()  # which no stall of the machine counts into
            for _ in range(200):
                run = queue.take()
                assert run is not None
                queue.done(run)
            return time.thread_time() - start

        few = min(seconds(400) for _ in range(3))
        assert seconds(40_000) < 10 * few + 0.05

    def test_of_a_shard_are_taken_further_for_one_request(self) -> None:
        other = shard(2)
        queue = queue_of(Grouping(limit=1))
        queue.put([*(unit(number, options=1) for number in range(4)), unit(4, options=1, of=other)])
        run = queue.take()
        assert run is not None
        more = queue.take_more(run, 2, lambda _unit: True)
        more += queue.take_more(run, 9, lambda _unit: True)
        assert [joined.row.number for joined in more] == [1, 2, 3]
        assert (len(queue), queue.take()) == (1, None)
        assert numbers([queue.next(run)]) == [4]


class TestLimits:
    def test_bound_what_runs_at_a_runtime(self) -> None:
        queue = queue_of(Parallel(limit=2))
        queue.put(unit(number) for number in range(4))
        first, _, none = queue.take(), queue.take(), queue.take()
        assert none is None
        assert first is not None
        assert numbers([queue.next(first)]) == [2]

    def test_are_the_runtimes_own_over_all_batches(self) -> None:
        runtimes = runtimes_of(Parallel(limit=2))
        queues = [RowQueue(runtimes), RowQueue(runtimes)]
        queues[0].put([unit(1)])
        queues[1].put([unit(2), unit(3)])
        assert numbers([queues[0].take(), queues[1].take(), queues[1].take()]) == [1, 2, None]

    def test_of_one_runtime_hold_up_no_other(self) -> None:
        queue = queue_of(Parallel(models=("a",), limit=1), Parallel(models=("b",), limit=1))
        queue.put([*(unit(number, model="a") for number in range(3)), unit(9, model="b")])
        assert sorted(run.unit.row.number for run in (queue.take(), queue.take()) if run) == [0, 9]
        assert queue.take() is None

    def test_a_place_given_back_wakes_the_lane_of_another_batch(self) -> None:
        runtimes = runtimes_of(Parallel(limit=1))
        busy, waiting = RowQueue(runtimes), RowQueue(runtimes)
        busy.put([unit(1)])
        run = busy.take()
        assert run is not None
        waiting.put([unit(2)])
        lane = threading.Thread(target=waiting.wait)
        lane.start()
        assert busy.next(run) is None
        lane.join(5)
        assert not lane.is_alive()


class TestTheOlderBatch:
    """Goes first where runtimes are full: else a younger one that claims on and on would keep it waiting for hours."""

    def test_gets_the_place_that_the_younger_one_gives_back(self) -> None:
        runtimes = runtimes_of(Parallel(limit=1))
        younger, older = RowQueue(runtimes, (2, "b")), RowQueue(runtimes, (1, "a"))
        younger.put(unit(number) for number in range(4))
        run = younger.take()
        assert run is not None
        older.put([unit(9)])
        lane = threading.Thread(target=older.wait, daemon=True)
        lane.start()
        assert younger.next(run) is None
        lane.join(5)
        assert not lane.is_alive()
        assert younger.take() is None
        waiting = threading.Thread(target=younger.wait, daemon=True)
        waiting.start()
        run = older.take()
        assert numbers([run]) == [9]
        assert run is not None
        assert older.next(run) is None
        waiting.join(5)
        assert not waiting.is_alive()
        assert numbers([younger.take()]) == [1]

    def test_has_a_runtime_finish_what_is_loaded_and_load_its_own(self) -> None:
        runtimes = runtimes_of(Grouping(limit=2))
        younger, older = RowQueue(runtimes, (2, "b")), RowQueue(runtimes, (1, "a"))
        younger.put(unit(number, options=1) for number in range(4))
        runs = [younger.take(), younger.take()]
        older.put([unit(9, options=2)])
        for run in runs:
            assert run is not None
            assert older.take() is None
            assert younger.next(run) is None
        run = older.take()
        assert numbers([run, younger.take()]) == [9, None]
        assert run is not None
        older.done(run)
        assert numbers([younger.take()]) == [2]

    def test_keeps_nobody_out_where_it_is_not_served_or_held(self) -> None:
        runtimes = runtimes_of(Parallel(models=("a",), limit=1), Parallel(models=("b",), limit=1))
        younger, older = RowQueue(runtimes, (2, "b")), RowQueue(runtimes, (1, "a"))
        older.put([unit(1, model="a"), unit(2, model="a")])
        younger.put([unit(3, model="b"), unit(4, model="a")])
        assert numbers([younger.take(), younger.take()]) == [3, None]
        lane = threading.Thread(target=younger.wait, daemon=True)
        lane.start()
        older.hold("its rows wait to be stored")
        lane.join(5)
        assert not lane.is_alive()
        assert numbers([younger.take()]) == [4]


def test_equal_runtimes_share_the_load() -> None:
    executors = [Parallel() for _ in range(8)]
    runtimes = runtimes_of(*executors)
    queue = RowQueue(runtimes)
    queue.put(unit(number) for number in range(24))
    runs = [queue.take() for _ in range(24)]
    assert [len(place.runs) for place in runtimes.places] == [3] * 8
    gone = [run for run in runs if run is not None and run.place is runtimes.places[5]]
    for run in gone:
        queue.done(run)
    queue.put([unit(24), unit(25)])
    assert [run.place for run in (queue.take(), queue.take()) if run] == [runtimes.places[5]] * 2


def test_rows_follow_a_model_to_where_it_is_served_now() -> None:
    here, there = Parallel(models=("a",)), Parallel(models=())
    runtimes = runtimes_of(here, there)
    queue = RowQueue(runtimes)
    queue.put([unit(1, model="a")])
    here.models, there.models = (), ("a",)
    runtimes.probe()
    run = queue.take()
    assert run is not None
    assert run.place is runtimes.places[1]


class TestARowThatRunsAgain:
    def test_comes_first_or_last_as_it_is_judged(self) -> None:
        queue = queue_of()
        queue.put([unit(1), unit(2)])
        run = queue.take()
        assert run is not None
        queue.again(run.unit, Verdict.LAST)
        run = queue.next(run)
        assert run is not None
        queue.again(run.unit, Verdict.FIRST)
        queue.done(run)
        assert all_of(queue) == [2, 1]

    def test_that_is_to_wait_for_ever_waits_for_minutes(self) -> None:
        now = [0.0]
        queue = RowQueue(runtimes_of(SteeredExecutor(), clock=lambda: now[0]))
        queue.put([unit(1)])
        run = queue.take()
        assert run is not None
        queue.again(run.unit, Verdict.LATER, not_before=1e9)
        assert queue.next_due == MAX_PEACE_SECONDS

    def test_in_a_while_comes_when_its_pause_is_over(self) -> None:
        now = [0.0]
        queue = RowQueue(runtimes_of(SteeredExecutor(), clock=lambda: now[0]))
        queue.put([unit(1)])
        run = queue.take()
        assert run is not None
        queue.again(run.unit, Verdict.LATER, not_before=20.0)
        queue.done(run)
        assert (queue.take(), queue.next_due, len(queue)) == (None, 20.0, 1)
        now[0] = 20.0
        queue.wake_due(now[0])
        assert numbers([queue.take()]) == [1]

    @pytest.mark.parametrize("leaves", [False, True])
    def test_alone_waits_for_the_others_and_keeps_them_out(self, leaves: bool) -> None:
        queue = queue_of()
        queue.put(unit(number) for number in range(3))
        before = queue.take()
        second = queue.take()
        assert before is not None
        assert second is not None
        queue.again(second.unit, Verdict.ALONE)
        queue.done(second)
        assert queue.take() is None  # the runtime is kept free, and not free yet
        if leaves:
            queue.discard(lambda unit: unit.row.number == 1)
            assert numbers([queue.take()]) == [2]
            return
        alone = queue.next(before)
        assert alone is not None
        assert (alone.unit.row.number, alone.is_alone) == (1, True)
        assert queue.take() is None
        assert numbers([queue.next(alone)]) == [2]
