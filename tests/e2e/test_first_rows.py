"""A batch whose first rows all fail alike stops early, says so, and loses nothing (decision 22)."""

import pytest

from tests.e2e.rows import assert_books_balance, counts, lines, marked, row
from tests.e2e.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

FIRST = 8
WORKERS = 2


def test_five_thousand_rows_that_are_all_refused_cost_a_few_requests(shared_yard: Yard) -> None:
    batch = shared_yard.submit(marked("doomed", 5000, "status=400"), canary_rows=FIRST)
    ended = batch.ended("failed")
    total, completed, failed = counts(batch)
    assert (total, completed) == (5000, 0)
    assert FIRST <= failed <= FIRST * WORKERS
    assert sum(mark.startswith("doomed-") for mark in shared_yard.runtime.marks()) <= FIRST * WORKERS

    assert ended.errors is not None
    assert ended.errors.data is not None
    (error,) = ended.errors.data
    assert error.code == "first_rows_failed"
    assert "400" in str(error.message)
    assert f"{5000 - failed} of 5000 rows were not run" in str(error.message)
    assert error.line is not None
    assert ended.output_file_id is None
    assert_books_balance(batch, "doomed", 5000)
    assert {line["response"]["status_code"] for line in batch.errors() if line["response"]} == {400}
    kinds = [event["type"] for event in shared_yard.events(batch.id)]
    assert kinds.count("batch.first_rows_failed") == 1


def test_one_good_row_among_the_first_runs_all(shared_yard: Yard, single: str) -> None:
    bad = [row("seven", number, "status=400") for number in range(7)]
    good = [row("seven", number) for number in range(7, 300)]
    batch = shared_yard.submit(lines(bad + good), pool=single, canary_rows=FIRST)
    batch.ended()
    assert counts(batch) == (300, 293, 7)
    assert_books_balance(batch, "seven", 300)


def test_first_rows_that_fail_each_in_its_own_way_run_all(shared_yard: Yard, single: str) -> None:
    rows = [row("differ", number, f"status={400 if number % 2 else 422}") for number in range(60)]
    batch = shared_yard.submit(lines(rows), pool=single, canary_rows=FIRST)
    batch.ended()
    assert counts(batch) == (60, 0, 60)


def test_without_a_canary_all_rows_run(shared_yard: Yard, single: str) -> None:
    batch = shared_yard.submit(marked("all", 60, "status=400"), pool=single, canary_rows=0)
    ended = batch.ended()
    assert ended.output_file_id is None
    assert counts(batch) == (60, 0, 60)
