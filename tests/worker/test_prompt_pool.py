"""A batch's lanes: a permit goes along from row to row, and comes back whatever becomes of the row and of the batch."""

import threading
from collections.abc import Callable

import pytest

from app.domain.rows import Reply
from app.worker.lane import Rest
from app.worker.permits import Permits
from app.worker.prompt_pool import PromptPool
from app.worker.row_queue import RowQueue
from app.worker.runtimes import Runtimes
from app.worker.units import Run
from tests.e2e.yard import until
from tests.fakes.steered_executor import SteeredExecutor
from tests.worker.units import runtimes_of, unit

Ended = Callable[[Run, Rest | None], None]
NoThread = Callable[[BaseException], None]


class Beginning:
    """Begins each row and leaves its end to the test; one that is to be run, it has run at once."""

    def __init__(self) -> None:
        self.begun: list[tuple[Run, Ended]] = []
        self.ran: list[int] = []

    def start(self, run: Run, ended: Ended) -> bool:
        self.begun.append((run, ended))
        return True

    def run(self, run: Run, rest: Rest | None = None) -> None:  # noqa: ARG002 - whatever is left of it
        self.ran.append(run.unit.row.number)

    def end(self, number: int, rest: Rest | None = None) -> None:
        """End the row that was begun as this one, counted from 0."""
        run, ended = self.begun[number]
        ended(run, rest)


class Waiting:
    """Begins nothing, and runs rows that end when the test says so."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.most = 0
        self.ran: list[int] = []
        self._now = 0
        self._lock = threading.Lock()

    def start(self, run: Run, ended: Ended) -> bool:  # noqa: ARG002 - never
        return False

    def run(self, run: Run, rest: Rest | None = None) -> None:  # noqa: ARG002 - there is none
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.go_on.wait(30)
        with self._lock:
            self._now -= 1
            self.ran.append(run.unit.row.number)


@pytest.fixture
def runtimes() -> Runtimes:
    return runtimes_of(SteeredExecutor())


@pytest.fixture
def rows(runtimes: Runtimes) -> RowQueue:
    queue = RowQueue(runtimes, (1, "batch_1"))
    queue.put(unit(number) for number in range(5))
    return queue


def pool_of(
    rows: RowQueue, permits: Permits, runner: Beginning | Waiting, on_no_thread: NoThread = lambda _error: None
) -> PromptPool:
    pool = PromptPool(rows.age, permits, rows, runner, on_no_thread=on_no_thread)
    pool.fit()
    return pool


def under_way(
    rows: RowQueue, permits: Permits, on_no_thread: NoThread = lambda _error: None
) -> tuple[PromptPool, Beginning]:
    """Have a row under way for each permit."""
    runner = Beginning()
    pool = pool_of(rows, permits, runner, on_no_thread)
    until(lambda: len(runner.begun) == permits.limit, "the rows are under way")
    return pool, runner


def test_rows_that_wait_run_side_by_side_as_far_as_there_are_permits(rows: RowQueue) -> None:
    permits, runner = Permits(3), Waiting()
    pool = pool_of(rows, permits, runner)
    until(lambda: runner.most == 3, "three rows run")
    runner.go_on.set()
    until(lambda: sorted(runner.ran) == [0, 1, 2, 3, 4], "all have run")
    until(lambda: permits.in_use == 0, "every permit is back")
    assert runner.most == 3
    pool.close()


def test_a_row_that_is_under_way_keeps_its_permit_and_hands_it_to_the_next(rows: RowQueue) -> None:
    permits = Permits(2)
    pool, runner = under_way(rows, permits)
    for number in range(3):
        assert permits.in_use == 2
        runner.end(number)
        assert len(runner.begun) == number + 3
    runner.end(3)
    runner.end(4)
    until(lambda: permits.in_use == 0, "every permit is back")
    assert [run.unit.row.number for run, _ in runner.begun] == [0, 1, 2, 3, 4]
    pool.close()


def test_what_is_left_of_a_row_goes_to_a_thread_and_its_permit_goes_along(rows: RowQueue) -> None:
    permits = Permits(1)
    pool, runner = under_way(rows, permits)
    runner.end(0, lambda: Reply(status=200))
    until(lambda: runner.ran == [0], "the rest of it has run")
    until(lambda: len(runner.begun) == 2, "the next one is under way")
    assert permits.in_use == 1
    pool.close()


def test_a_lowered_limit_takes_the_permit_of_the_row_that_ends_next(rows: RowQueue) -> None:
    permits = Permits(2)
    pool, runner = under_way(rows, permits)
    permits.set_limit(1)
    runner.end(0)
    assert (len(runner.begun), permits.in_use) == (2, 1)
    runner.end(1)
    until(lambda: len(runner.begun) == 3, "the next one is under way")
    assert permits.in_use == 1
    pool.close()


@pytest.mark.parametrize("rest", [None, lambda: Reply(status=200)], ids=["settled", "wants a thread"])
def test_a_row_that_ends_after_its_batch_gives_back_its_place_and_its_permit(
    rows: RowQueue, runtimes: Runtimes, rest: Rest | None
) -> None:
    permits = Permits(1)
    pool, runner = under_way(rows, permits)
    pool.close()
    runner.end(0, rest)
    assert runtimes.places[0].runs == set()
    until(lambda: permits.in_use == 0, "the permit is back")
    assert (len(runner.begun), runner.ran) == (1, [])


def test_a_row_that_wants_a_thread_when_the_system_has_none_waits_for_the_next_one(
    rows: RowQueue, runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    permits = Permits(1)
    heard: list[BaseException] = []
    pool, runner = under_way(rows, permits, heard.append)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", none_left)
        runner.end(0, lambda: Reply(status=200))
        assert (permits.in_use, len(runtimes.places[0].runs), runner.ran, len(heard)) == (1, 1, [], 1)
        with pytest.raises(RuntimeError):
            pool.fit()
        assert runner.ran == []
    pool.fit()
    until(lambda: runner.ran == [0], "the rest of it has run")
    pool.close()


def test_a_pool_that_has_closed_takes_no_lane_and_no_offence(runtimes: Runtimes) -> None:
    """Whoever resizes all shares may meet one that is just ending, and has other things to do afterwards."""
    permits = Permits(0)
    pool = pool_of(RowQueue(runtimes, (2, "batch_closed")), permits, Beginning())
    pool.close()
    permits.set_limit(2)
    pool.fit()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rows-batch_closed")]
