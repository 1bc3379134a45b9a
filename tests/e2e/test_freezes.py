"""One part freezes for a minute, as a machine does that swaps, and goes on as if nothing had been."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster import Cluster
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import PROMPTS, TIMING, TOLERATION_SECONDS, Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

ROWS = 1000
SHARD_ROWS = 64
FROZEN_SECONDS = 65.0
"""Twenty times the grace of these yards, and long enough for what is said once a minute."""
PATIENT = {"GPUYARD_TOLERATION_SECONDS": "120"}
"""Leases outlive the minute: whoever gave one up or ended one has done so by mistake."""
ON_POSTGRES = pytest.param("postgres", marks=[pytest.mark.postgres])
MakeYard = Callable[..., Yard]


@pytest.fixture
def make_yard(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[MakeYard]:
    """A yard with two workers on `sqlite` or `postgres`, and another toleration where a test needs one."""
    made: list[Yard] = []

    def make(database: str, timing: dict[str, str] | None = None) -> Yard:
        url = None
        if database == "postgres":
            cluster: Cluster = request.getfixturevalue("postgres_cluster")
            url = cluster.url(cluster.create())
        where = tmp_path_factory.mktemp("yard")
        yard = Yard(where, database_url=url, timing=TIMING | (timing or {}), shard_rows=SHARD_ROWS)
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


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    processes = cluster.processes()
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)


def assert_nothing_ran_twice(yard: Yard, batch: Submitted, prefix: str) -> None:
    batch.ended(seconds=120)
    assert_each_row_once(batch, prefix, ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    assert "lease.expired" not in {event["type"] for event in yard.events(batch.id)}
    assert all(worker.alive for worker in yard.workers.values())


def assert_only_what_was_cut_ran_twice(yard: Yard, batch: Submitted, prefix: str) -> None:
    """The workers gave their leases up meanwhile, so what was in flight then has to run again."""
    batch.ended(seconds=120)
    assert_each_row_once(batch, prefix, ROWS)
    again = yard.runtime.stats()["requests"] - ROWS
    assert again <= len(yard.workers) * PROMPTS, f"{again} of {ROWS} rows ran twice"
    assert "lease.expired" not in {event["type"] for event in yard.events(batch.id)}
    assert all(worker.alive for worker in yard.workers.values())


@pytest.mark.parametrize("database", ["sqlite", ON_POSTGRES])
def test_the_api_frozen_for_a_minute_costs_no_lease_and_no_row_runs_twice(make_yard: MakeYard, database: str) -> None:
    """Workers may hold on for longer than it is frozen; nobody could have heard them meanwhile (PROTOCOL 4)."""
    yard = make_yard(database, PATIENT)
    pids = yard.ready["pids"]
    batch = run_through(yard, "api")
    before = {name: worker.log.read_text().count("worker.unreachable") for name, worker in yard.workers.items()}
    with yard.frozen("api"):
        time.sleep(FROZEN_SECONDS)  # that is the fault
    assert_nothing_ran_twice(yard, batch, "api")
    assert "service.absence" in {event["type"] for event in yard.events("api")}
    for name, worker in yard.workers.items():
        said = worker.log.read_text().count("worker.unreachable") - before[name]
        assert 1 <= said <= 3, "at the first failure, then once a minute (BK-05)"
    assert yard.ready["pids"] == pids, "no process had to be started again"


@pytest.mark.postgres
def test_the_database_frozen_for_a_minute_costs_no_lease_and_no_row_runs_twice(
    make_yard: MakeYard, postgres_cluster: Cluster
) -> None:
    """Heartbeats got no answer, and so nobody was silent (PROTOCOL 4)."""
    yard = make_yard("postgres", PATIENT)
    pids = yard.ready["pids"]
    batch = run_through(yard, "database")
    with frozen(postgres_cluster):
        time.sleep(FROZEN_SECONDS)  # that is the fault
    assert_nothing_ran_twice(yard, batch, "database")
    assert "service.absence" in {event["type"] for event in yard.events("api")}
    assert yard.ready["pids"] == pids


@pytest.mark.postgres
def test_what_was_finished_before_leases_were_given_up_runs_once_though_the_database_froze_for_longer(
    make_yard: MakeYard, postgres_cluster: Cluster
) -> None:
    """The workers give up after ten of the sixty seconds; what they had finished by then waits in their spools."""
    yard = make_yard("postgres", {"GPUYARD_TOLERATION_SECONDS": "12"})
    batch = run_through(yard, "tolerated")
    with frozen(postgres_cluster):
        time.sleep(60.0)  # that is the fault
    assert_only_what_was_cut_ran_twice(yard, batch, "tolerated")


@pytest.mark.parametrize("database", ["sqlite", ON_POSTGRES])
def test_what_was_finished_while_the_api_froze_for_twice_the_lease_runs_once(
    make_yard: MakeYard, database: str
) -> None:
    """Beat and the control worker go on, and blame no worker for what nobody could hear."""
    yard = make_yard(database)
    batch = run_through(yard, "twice")
    with yard.frozen("api"):
        time.sleep(2 * TOLERATION_SECONDS)  # that is the fault
    assert_only_what_was_cut_ran_twice(yard, batch, "twice")
    for name in yard.workers:
        worker = yard.http.get(f"/v1/workers/{name}").json()
        assert "worker.offline" not in {event["type"] for event in yard.events(worker["id"])}


def test_the_broker_frozen_for_a_minute_is_missed_by_no_batch(make_yard: MakeYard) -> None:
    """Bells come by polls meanwhile, and by messages again after the thaw."""
    yard = make_yard("sqlite")
    pids = yard.ready["pids"]
    batch = run_through(yard, "broker")
    with yard.frozen("broker"):
        thaws_at = time.monotonic() + FROZEN_SECONDS
        during = yard.submit(marked("during", 20))
        during.ended()
        batch.ended()
        time.sleep(max(0.0, thaws_at - time.monotonic()))  # that is the fault
    after = yard.submit(marked("after", 20))
    after.ended()
    for ended, prefix, rows in ((batch, "broker", ROWS), (during, "during", 20), (after, "after", 20)):
        assert_each_row_once(ended, prefix, rows)
    assert yard.runtime.stats()["requests"] == ROWS + 40
    assert yard.ready["pids"] == pids
    assert all(worker.alive for worker in yard.workers.values())
    until(lambda: yard.http.get("/readyz").is_success, "all is well")


@pytest.mark.parametrize(
    ("part", "database"), [("control", "sqlite"), pytest.param("beat", "postgres", marks=[pytest.mark.postgres])]
)
def test_the_sweeps_go_on_without_a_frozen_part_and_a_dead_worker_is_missed(
    make_yard: MakeYard, part: str, database: str
) -> None:
    """Whoever finds that no pass has run for three periods runs it; nobody waits for the thaw."""
    yard = make_yard(database)
    pids = yard.ready["pids"]
    batch = run_through(yard, part)
    with yard.frozen(part):
        thaws_at = time.monotonic() + FROZEN_SECONDS
        yard.kill_at_work("two")
        batch.stored(ROWS, seconds=FROZEN_SECONDS)
        assert "lease.expired" in {event["type"] for event in yard.events(batch.id)}
        if part == "beat":
            batch.ended(seconds=max(1.0, thaws_at - time.monotonic()))
        time.sleep(max(0.0, thaws_at - time.monotonic()))  # that is the fault
    batch.ended(seconds=120)
    assert_each_row_once(batch, part, ROWS)
    assert yard.ready["pids"] == pids
    until(lambda: yard.http.get("/readyz").is_success, "all is well")
