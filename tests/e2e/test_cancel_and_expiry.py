"""A batch that is told to end, by its owner or by its window, in every state (PROTOCOL 5, DESIGN 6)."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import ConflictError

from tests.e2e.rows import assert_books_balance, assert_each_row_once, counts, custom_ids, lines, marked, row
from tests.e2e.submitted import ENDED, Submitted
from tests.e2e.yard import PROMPTS, Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

DONE, WAITING = 5, 12
ALL = DONE + PROMPTS + WAITING


def half_done(prefix: str) -> bytes:
    """Rows of which a worker finishes five, has eight in flight that never end, and does not come to twelve."""
    rows = [row(prefix, number) for number in range(DONE)]
    return lines(rows + [row(prefix, number, "hang=1") for number in range(DONE, ALL)])


def assert_kept_what_was_done(batch: Submitted, prefix: str, code: str) -> None:
    assert_books_balance(batch, prefix, ALL)
    assert custom_ids(batch.output()) == [f"{prefix}-{number}" for number in range(DONE)]
    assert [line["error"]["code"] for line in batch.errors()] == [code] * (PROMPTS + WAITING)
    assert counts(batch) == (ALL, DONE, 0)


def assert_never_ran(batch: Submitted) -> None:
    """It ended before it was validated: no counts, no files, an empty one file."""
    ended = batch.now()
    assert counts(batch) == (0, 0, 0)
    assert (ended.output_file_id, ended.error_file_id) == (None, None)
    assert batch.results() == []


def until_all_in_flight(yard: Yard, batch: Submitted) -> None:
    batch.stored(DONE)
    yard.runtime.wait_for(lambda stats: stats["in_flight"] == PROMPTS)


# --- cancel


def test_a_cancel_keeps_what_is_done_and_cuts_what_is_in_flight(shared_yard: Yard, alone: str) -> None:
    """R-12."""
    batch = shared_yard.submit(half_done("cut"), pool=alone)
    until_all_in_flight(shared_yard, batch)

    assert batch.cancel().status == "cancelling"
    shared_yard.runtime.wait_for(lambda stats: stats["in_flight"] == 0, seconds=2)

    batch.ended("cancelled")
    assert_kept_what_was_done(batch, "cut", "batch_cancelled")
    assert batch.cancel().status == "cancelled"


def test_a_cancel_that_the_broker_never_carries_works_by_heartbeat(shared_yard: Yard, alone: str) -> None:
    batch = shared_yard.submit(half_done("unheard"), pool=alone)
    until_all_in_flight(shared_yard, batch)

    with shared_yard.frozen("broker"):
        asked = time.monotonic()
        batch.cancel()
        assert time.monotonic() - asked < 1
        shared_yard.runtime.wait_for(lambda stats: stats["in_flight"] == 0, seconds=5)
        batch.ended("cancelled")

    assert_kept_what_was_done(batch, "unheard", "batch_cancelled")


def test_a_cancel_while_it_validates(shared_yard: Yard) -> None:
    with shared_yard.frozen("control"):
        batch = shared_yard.submit(marked("early", 10))
        assert batch.now().status == "validating"
        assert batch.cancel().status == "cancelling"

    batch.ended("cancelled")
    assert_never_ran(batch)


def test_a_cancel_while_it_waits_for_a_worker(shared_yard: Yard, deserted: str) -> None:
    batch = shared_yard.submit(marked("queued", 10), pool=deserted)
    batch.until(lambda found: found.status == "in_progress", "it is validated")
    assert batch.inner()["waiting_reason"]
    batch.cancel()

    batch.ended("cancelled")
    assert_books_balance(batch, "queued", 10)
    assert {line["error"]["code"] for line in batch.errors()} == {"batch_cancelled"}


def test_a_cancel_after_the_end_is_refused_and_changes_nothing(shared_yard: Yard) -> None:
    batch = shared_yard.submit(marked("over", 3))
    before = batch.ended()
    with pytest.raises(ConflictError):
        batch.cancel()
    assert batch.now() == before


def test_a_cancel_around_the_last_row_has_one_winner_and_true_counts(shared_yard: Yard) -> None:
    def race(number: int) -> str:
        batch = shared_yard.submit(lines(row(f"race{number}", n, f"latency_ms={250 * n}") for n in range(6)))
        near = random.randint(0, 6)
        batch.until(
            lambda found: found.status in ENDED or (found.request_counts and found.request_counts.completed >= near),
            f"{near} rows are stored",
        )
        try:
            batch.cancel()
        except ConflictError:
            ended = batch.until(lambda found: found.status in ENDED, "it ends")
            assert ended.status == "completed"
        else:
            ended = batch.ended("cancelled")
        if ended.in_progress_at is not None:
            assert_books_balance(batch, f"race{number}", 6)
        else:
            assert_never_ran(batch)
        return ended.status

    with ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(race, range(16)))
    assert set(statuses) <= {"completed", "cancelled"}


# --- the end of the window


def test_the_window_ends_while_it_runs(shared_yard: Yard, alone: str) -> None:
    batch = shared_yard.submit(half_done("late"), pool=alone, window="6s")
    until_all_in_flight(shared_yard, batch)
    batch.ended("expired", seconds=20)
    assert_kept_what_was_done(batch, "late", "batch_expired")
    assert shared_yard.runtime.stats()["in_flight"] == 0


def test_the_window_ends_without_any_worker_and_a_batch_that_has_ended_stays_as_it_is(
    shared_yard: Yard, deserted: str
) -> None:
    over = shared_yard.submit(marked("done", 3), window="3s")
    before = over.ended()
    batch = shared_yard.submit(marked("lonely", 10), pool=deserted, window="3s")

    batch.ended("expired", seconds=20)
    assert_books_balance(batch, "lonely", 10)
    assert {line["error"]["code"] for line in batch.errors()} == {"batch_expired"}
    assert over.now() == before
    assert_each_row_once(over, "done", 3)


def test_the_window_ends_while_it_validates(shared_yard: Yard) -> None:
    with shared_yard.frozen("control"):
        batch = shared_yard.submit(marked("unread", 10), window="1s")
        # Nobody but the frozen control worker sweeps on time: the API stands in.
        until(lambda: batch.inner()["state"] == "finalizing", "the end of its window is seen", seconds=20)

    batch.ended("expired", seconds=20)
    assert_never_ran(batch)
