"""`auto` finds what a runtime makes use of, and stays there (R-17). A simulated runtime, a fake clock, no threads."""

import heapq

import pytest

from app.worker.sizing import START, AutoSize, start_size


def simulate(
    *, slots: int, latency: float, rows: int, known_slots: int | None = None
) -> tuple[AutoSize, int, list[int]]:
    """Run `rows` on a runtime of `slots`. Gives the AutoSize, the most queued in the second half, all sizes."""
    now = 0.0
    size = AutoSize(lambda: now, known_slots=known_slots)
    sizes = [size.size]
    ends: list[float] = []  # of what runs; what is in flight beyond `slots` queues
    queued = most_queued = 0
    free = slots
    for number in range(rows):
        while len(ends) + queued < size.size:
            if free:
                free -= 1
                heapq.heappush(ends, now + latency)
            else:
                queued += 1
        if number > rows / 2:
            most_queued = max(most_queued, queued)
        now = heapq.heappop(ends)
        if queued:
            queued -= 1
            heapq.heappush(ends, now + latency)
        else:
            free += 1
        if size.row_done() is not None:
            sizes.append(size.size)
    return size, most_queued, sizes


@pytest.mark.parametrize(
    ("slots", "latency", "least"),
    [(64, 0.05, 64), (256, 0.2, 256), (8, 0.1, 8), (1, 0.5, 1), (48, 0.05, 48), (4, 8.0, 4)],
)
def test_it_fills_the_runtime_and_queues_at_most_one_engine_full_after_the_ramp(
    slots: int, latency: float, least: int
) -> None:
    size, most_queued, sizes = simulate(slots=slots, latency=latency, rows=20_000)
    assert size.size >= least
    assert size.size <= max(START * 1.125, 2.25 * slots)
    assert most_queued <= max(slots, START)
    assert len(sizes) <= 10


def test_the_size_does_not_move_after_it_was_found() -> None:
    size, _, sizes = simulate(slots=64, latency=0.05, rows=5_000)
    _, _, longer = simulate(slots=64, latency=0.05, rows=40_000)
    assert sizes == longer == [8, 16, 32, 64, 128, 72]
    assert size.row_done() is None


def test_known_slots_need_no_search() -> None:
    size, _, sizes = simulate(slots=64, latency=0.05, rows=5_000, known_slots=64)
    assert sizes == [72]
    assert size.size == 72


@pytest.mark.parametrize(("slots", "size"), [(None, 8), (0, 8), (1, 2), (64, 72), (10_000, 1024)])
def test_it_starts_at_eight_or_at_an_eighth_more_than_the_known_slots(slots: int | None, size: int) -> None:
    assert start_size(slots) == size


def test_a_window_in_which_rows_ran_out_decides_nothing() -> None:
    now = 0.0
    size = AutoSize(lambda: now)
    for _ in range(1000):
        now += 0.01
        size.row_done()
        size.starved()
    assert size.size == START
