"""A yard with the timings that users have: no heartbeat, no sweep comes along within seconds to hide a lost bell.

And what a batch as large as one may be costs there, against an engine that answers at once.
"""

import logging
import os
import re
import time
from pathlib import Path

import pytest

from tests.e2e.rows import assert_books_balance, assert_each_row_once, marked
from tests.e2e.yard import PROMPTS, Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = int(os.environ.get("GPUYARD_TEST_ROWS", "5000"))
MIB = 1024
MAX_PEAK = {"api": 200, "control": 200, "one": 150}
"""MiB at most. Their memory must not follow the size of the batch: 50,000 rows cost no more than 5,000."""
log = logging.getLogger("figures")


@pytest.fixture(scope="module")
def yard(large_yard: Yard) -> Yard:
    return large_yard


def peak(pid: int) -> int:
    """The most memory a process ever had, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) // MIB


def test_a_small_batch_is_through_within_seconds(yard: Yard) -> None:
    batch = yard.submit(marked("small", 10))
    batch.ended(seconds=5)
    assert_each_row_once(batch, "small", 10)


def test_a_cancel_cuts_the_rows_in_flight_within_two_seconds_over_the_broker(yard: Yard) -> None:
    batch = yard.submit(marked("cut", 20, "hang=1"))
    yard.runtime.wait_for(lambda stats: stats["in_flight"] == PROMPTS)
    batch.cancel()
    yard.runtime.wait_for(lambda stats: stats["in_flight"] == 0, seconds=2)
    batch.ended("cancelled", seconds=5)
    assert_books_balance(batch, "cut", 20)


def test_a_large_batch_completes_and_no_process_holds_it_in_memory(yard: Yard) -> None:
    yard.runtime.reset()
    pids = {"api": yard.pid("api"), "control": yard.pid("control"), "one": yard.workers["one"].pid}
    began = time.monotonic()
    batch = yard.submit(marked("large", ROWS))
    ended = batch.ended(seconds=600)
    seconds = time.monotonic() - began
    peaks = {name: peak(pid) for name, pid in pids.items()}
    assert ended.in_progress_at is not None
    assert ended.finalizing_at is not None
    log.info(
        "%d rows in %.1f s, %.0f rows/s; validated within %d s, ran %d s; peaks in MiB: %s",
        *(ROWS, seconds, ROWS / seconds, ended.in_progress_at - ended.created_at),
        *(ended.finalizing_at - ended.in_progress_at, peaks),
    )
    assert_each_row_once(batch, "large", ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    assert all(peaks[name] <= most for name, most in MAX_PEAK.items()), peaks
