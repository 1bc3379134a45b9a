"""A part of the control side freezes for a minute, as a machine does that swaps, and goes on as if nothing had been."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import TIMING, Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

ROWS = 1000
FROZEN_SECONDS = 60.0
"""Twenty times the grace of these yards."""
MakeYard = Callable[..., Yard]


@pytest.fixture
def make_yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeYard]:
    """A yard with two workers, and another toleration where a test needs one."""
    made: list[Yard] = []

    def make(**timing: str) -> Yard:
        yard = Yard(tmp_path_factory.mktemp("yard"), timing=TIMING | timing, shard_rows=64)
        made.append(yard.__enter__())
        yard.start()
        yard.worker("one")
        yard.worker("two")
        yard.until_present("one", "two")
        return yard

    yield make
    for yard in made:
        yard.__exit__(None, None, None)


def run_through(yard: Yard, prefix: str) -> Submitted:
    batch = yard.submit(marked(prefix, ROWS, "latency_ms=150"))
    batch.stored(100)
    return batch


def test_the_api_frozen_for_a_minute_costs_no_lease_and_no_row_runs_twice(make_yard: MakeYard) -> None:
    """Workers may hold on for longer than it is frozen; nobody could have heard them meanwhile (PROTOCOL 4)."""
    yard = make_yard(GPUYARD_TOLERATION_SECONDS="120")
    pids = yard.ready["pids"]
    batch = run_through(yard, "api")
    before = {name: worker.log.read_text().count("worker.unreachable") for name, worker in yard.workers.items()}
    with yard.frozen("api"):
        time.sleep(FROZEN_SECONDS)  # that is the fault
    batch.ended(seconds=120)
    assert_each_row_once(batch, "api", ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    assert "lease.expired" not in {event["type"] for event in yard.events(batch.id)}
    assert "service.absence" in {event["type"] for event in yard.events("api")}
    for name, worker in yard.workers.items():
        said = worker.log.read_text().count("worker.unreachable") - before[name]
        assert 1 <= said <= 3, "at the first failure, then once a minute (BK-05)"
    assert yard.ready["pids"] == pids, "no process had to be started again"


@pytest.mark.parametrize("part", ["control", "beat"])
def test_the_sweeps_go_on_without_a_frozen_part_and_a_dead_worker_is_missed(make_yard: MakeYard, part: str) -> None:
    """Whoever finds that no pass has run for three periods runs it; nobody waits for the thaw."""
    yard = make_yard()
    pids = yard.ready["pids"]
    batch = run_through(yard, part)
    with yard.frozen(part):
        thaws_at = time.monotonic() + FROZEN_SECONDS
        yard.workers["two"].kill()
        batch.stored(ROWS, seconds=FROZEN_SECONDS)
        assert "lease.expired" in {event["type"] for event in yard.events(batch.id)}
        if part == "beat":
            batch.ended(seconds=max(1.0, thaws_at - time.monotonic()))
        time.sleep(max(0.0, thaws_at - time.monotonic()))  # that is the fault
    batch.ended(seconds=120)
    assert_each_row_once(batch, part, ROWS)
    assert yard.ready["pids"] == pids
    until(lambda: yard.http.get("/readyz").is_success, "all is well")
