"""What becomes of rows: the good, the refused, the failing, the hanging, and batches of odd sizes."""

from typing import Any

import pytest
from openai import NotFoundError

from tests.e2e.rows import assert_books_balance, assert_each_row_once, counts, custom_ids, lines, marked, row
from tests.e2e.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_batch_of_one_row(shared_yard: Yard) -> None:
    batch = shared_yard.submit(marked("single", 1))
    batch.ended()
    assert_each_row_once(batch, "single", 1)


def test_blank_lines_count_for_nothing(shared_yard: Yard) -> None:
    first, second = lines([row("spaced", 0)]), lines([row("spaced", 1)])
    batch = shared_yard.submit(b"\n" + first + b"\r\n  \n" + second + b"\n\n")
    batch.ended()
    assert_each_row_once(batch, "spaced", 2)


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n"], ids=["empty", "blank lines only"])
def test_a_file_without_rows_fails_its_batch(shared_yard: Yard, content: bytes) -> None:
    batch = shared_yard.submit(content)
    ended = batch.ended("failed")
    assert ended.errors is not None
    assert ended.errors.data is not None
    assert [error.code for error in ended.errors.data] == ["empty_file"]
    assert (ended.output_file_id, ended.error_file_id) == (None, None)
    assert counts(batch) == (0, 0, 0)


def test_a_batch_whose_rows_all_fail_is_completed_without_an_output_file(shared_yard: Yard) -> None:
    batch = shared_yard.submit(marked("bad", 8, "status=400"))
    ended = batch.ended("completed")
    assert ended.output_file_id is None
    assert counts(batch) == (8, 0, 8)
    assert_books_balance(batch, "bad", 8)
    assert {line["response"]["status_code"] for line in batch.errors()} == {400}


def test_each_kind_of_row_ends_as_the_table_says(shared_yard: Yard, impatient: str) -> None:
    """REQUIREMENTS B-13, B-14, B-17, DESIGN 6."""
    kinds = [
        row("kind", 0),
        row("kind", 1, "status=400"),
        row("kind", 2, "status=500"),
        row("kind", 3, stream=True),
        row("kind", 4, "hang=1"),
        row("kind", 5, stream=False),
        row("kind", 6, "cut=1"),
        row("kind", 7, "raw=no json"),
        row("kind", 8),
    ]
    batch = shared_yard.submit(lines(kinds), pool=impatient)
    batch.ended()

    assert_books_balance(batch, "kind", len(kinds))
    assert custom_ids(batch.output()) == ["kind-0", "kind-5", "kind-8"]
    failed = {line["custom_id"]: line for line in batch.errors()}
    assert list(failed) == ["kind-1", "kind-2", "kind-3", "kind-4", "kind-6", "kind-7"]
    for custom_id, status in (("kind-1", 400), ("kind-2", 500)):
        answered = failed[custom_id]
        assert answered["error"] is None
        assert answered["response"]["status_code"] == status
        assert answered["response"]["body"]["error"]["message"] == "told to fail"
    codes = {custom_id: line["error"]["code"] for custom_id, line in failed.items() if line["error"]}
    assert codes == {
        "kind-3": "UNSUPPORTED_PARAMETER",
        "kind-4": "request_timeout",
        "kind-6": "runtime_unavailable",
        "kind-7": "INTERNAL_ERROR",
    }


def test_a_hanging_row_holds_up_no_other(shared_yard: Yard, impatient: str) -> None:
    rows = [row("hang", 0, "hang=1"), *(row("hang", number) for number in range(1, 40))]
    batch = shared_yard.submit(lines(rows), pool=impatient)
    batch.stored(39)
    assert batch.now().status == "in_progress"
    batch.ended()
    assert_books_balance(batch, "hang", 40)
    assert custom_ids(batch.errors()) == ["hang-0"]


def test_one_file_holds_every_row_in_input_order(shared_yard: Yard) -> None:
    rows = [row("mixed", n, "status=400" if n % 3 == 0 else f"latency_ms={(n * 37) % 50}") for n in range(60)]
    batch = shared_yard.submit(lines(rows))
    batch.ended()

    both = {line["custom_id"]: line for line in batch.output() + batch.errors()}
    assert batch.results() == [both[f"mixed-{number}"] for number in range(60)]


def test_usage_is_the_sum_over_the_output_rows(shared_yard: Yard) -> None:
    batch = shared_yard.submit(lines(row("usage", n, "" if n % 4 else "status=400", pad="x" * n) for n in range(40)))
    used = batch.ended().usage
    assert used is not None
    rows: list[dict[str, Any]] = [line["response"]["body"]["usage"] for line in batch.output()]
    assert len(rows) == 30
    assert used.input_tokens == sum(found["prompt_tokens"] for found in rows)
    assert used.output_tokens == sum(found["completion_tokens"] for found in rows)
    assert used.total_tokens == sum(found["total_tokens"] for found in rows)


def test_deleting_the_input_file_hides_it_and_stops_nothing(shared_yard: Yard) -> None:
    batch = shared_yard.submit(marked("deleted", 600, "latency_ms=40"))
    batch.stored(1)
    file_id = batch.now().input_file_id
    assert shared_yard.sdk.files.delete(file_id).deleted
    with pytest.raises(NotFoundError):
        shared_yard.sdk.files.retrieve(file_id)

    batch.ended()
    assert_each_row_once(batch, "deleted", 600)


@pytest.fixture(scope="module")
def impatient(shared_yard: Yard) -> str:
    """A pool whose only worker waits two seconds for a row."""
    shared_yard.http.post("/v1/pools", json={"name": "impatient"}).raise_for_status()
    shared_yard.worker("impatient", pool="impatient", row_timeout_seconds=2, retry_min_seconds=0.1)
    shared_yard.until_present("impatient")
    return "impatient"
