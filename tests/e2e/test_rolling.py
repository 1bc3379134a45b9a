"""A rolling restart: all workers are drained, one after the other, while they work."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Fleet
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

WORKERS = ("north", "east", "south", "west")
ROWS = 2000


@pytest.fixture
def yard(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[Yard]:
    where = tmp_path_factory.mktemp("yard")
    with Yard(where, database_url=fleet.database_url, transports=fleet.transports, shard_rows=64) as yard:
        yard.start()
        for name in WORKERS:
            yard.worker(name)
        yard.until_present(*WORKERS)
        yield yard


def test_four_workers_drained_one_after_the_other_lose_and_repeat_nothing(yard: Yard) -> None:
    batch = yard.submit(marked("row", ROWS, "latency_ms=400"))
    batch.stored(100)
    for name in WORKERS:
        assert batch.now().status == "in_progress", "the drain must meet a worker at work"
        assert yard.workers[name].stop(seconds=30) == 0
        yard.worker(name)
    batch.ended(seconds=120)

    assert_each_row_once(batch, "row", ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    kinds = {event["type"] for event in yard.events(batch.id)}
    assert "lease.released" in kinds
    assert "lease.expired" not in kinds
    for name in WORKERS:
        of_worker = yard.events(yard.http.get(f"/v1/workers/{name}").json()["id"])
        (gone,) = [event["data"] for event in of_worker if event["type"] == "worker.gone"]
        assert gone == {"name": name, "reason": "signal", "inflight_abandoned": 0}
