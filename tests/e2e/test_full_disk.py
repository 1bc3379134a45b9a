"""A worker whose disk is full, on a real process whose files may not grow (RLIMIT_FSIZE)."""

import resource
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

ROWS = 1200
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
NONE_AT_ALL = (0, resource.RLIM_INFINITY)


@pytest.fixture
def yard(breakable_yard: Yard) -> Iterator[Yard]:
    with breakable_yard.manned("full") as yard:
        yield yard


def test_it_says_so_claims_nothing_loses_nothing_and_goes_on_when_there_is_room(yard: Yard) -> None:
    yard.runtime.reset()
    batch = yard.submit(marked("row", ROWS, "latency_ms=40"))
    batch.stored(40)
    files = psutil.Process(yard.workers["full"].pid)
    files.rlimit(psutil.RLIMIT_FSIZE, NONE_AT_ALL)
    until(lambda: yard.http.get("/v1/workers/full").json()["no_lease"] == "disk", "the list of workers says why")

    until(lambda: batch.inner()["workers"] == 0, "what it held is finished, and it claims nothing")
    counts = batch.now().request_counts
    assert counts is not None
    assert 40 <= counts.completed < ROWS
    assert yard.runtime.stats()["requests"] == counts.completed, "whatever ran is handed in, without the spool"
    assert batch.inner()["waiting_reason"] == "no worker of pool gpu is free: 1 out of disk"
    assert "free its disk" in yard.command("worker", "show", "full").stdout

    files.rlimit(psutil.RLIMIT_FSIZE, UNLIMITED)
    batch.ended(seconds=60)
    assert_each_row_once(batch, "row", ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    assert yard.workers["full"].alive
