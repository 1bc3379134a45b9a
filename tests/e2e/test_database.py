"""The database goes away while rows run: killed and recovered, and frozen. Nobody loses a row for it."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import TIMING, Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(240)]

ROWS = 1000
AWAY_SECONDS = 6.0
"""Twice the grace: workers are unreachable by then, and nobody is there to note it."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster(durable=True)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Yard]:
    timing = TIMING | {"GPUYARD_TOLERATION_SECONDS": "60"}
    where = tmp_path_factory.mktemp("yard")
    with Yard(where, database_url=cluster.url(cluster.create()), timing=timing, shard_rows=64) as yard:
        yard.start()
        yard.worker("one")
        yard.worker("two")
        yard.until_present("one", "two")
        yield yard


def run_through(yard: Yard, prefix: str) -> Submitted:
    yard.runtime.reset()
    batch = yard.submit(marked(prefix, ROWS, "latency_ms=150"))
    batch.stored(100)
    return batch


def assert_right(yard: Yard, batch: Submitted, prefix: str) -> None:
    batch.ended(seconds=120)
    assert_each_row_once(batch, prefix, ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    assert "lease.expired" not in {event["type"] for event in yard.events(batch.id)}
    assert all(worker.alive for worker in yard.workers.values())


def is_ready(yard: Yard) -> bool:
    return yard.http.get("/readyz").is_success


def test_killed_and_started_again(yard: Yard, cluster: Cluster) -> None:
    pids = yard.ready["pids"]
    batch = run_through(yard, "crashed")
    cluster.crash()
    until(lambda: not is_ready(yard), "the API says that it is not ready")
    time.sleep(AWAY_SECONDS)  # that is the fault
    cluster.start_again()
    until(lambda: is_ready(yard), "it says that it is ready again")
    assert_right(yard, batch, "crashed")
    assert yard.ready["pids"] == pids, "no process had to be started again"


@pytest.mark.long
def test_frozen_and_thawed(yard: Yard, cluster: Cluster) -> None:
    batch = run_through(yard, "frozen")
    frozen = cluster.processes()
    for process in frozen:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        time.sleep(AWAY_SECONDS)  # that is the fault
    finally:
        for process in frozen:
            os.kill(process.pid, signal.SIGCONT)
    assert_right(yard, batch, "frozen")
