"""The whole machine sleeps for longer than any lease lives, in mid-run, or the API alone is away for so long.

Either way nobody could be heard (PROTOCOL 4): nothing expires, and nobody is blamed.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.cluster import Cluster
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import PROMPTS, TOLERATION_SECONDS, Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

ROWS = 400
LATENCY_SECONDS = 0.5
ASLEEP_SECONDS = TOLERATION_SECONDS + 6
NAMES = ("one", "two")
AT_ONCE = PROMPTS * len(NAMES)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres])])
def cluster(request: pytest.FixtureRequest) -> Cluster | None:
    """The server of the yard's database; None is SQLite."""
    found: Cluster | None = request.getfixturevalue("postgres_cluster") if request.param == "postgres" else None
    return found


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster | None) -> Iterator[Yard]:
    """One worker that hears by the broker, one that polls."""
    url = cluster.url(cluster.create()) if cluster else None
    where = tmp_path_factory.mktemp("yard")
    with Yard(where, database_url=url, transports=("celery", "http"), shard_rows=32) as yard:
        yard.start()
        for name in NAMES:
            yard.worker(name)
        yard.until_present(*NAMES)
        yield yard


def everybody(yard: Yard, cluster: Cluster | None) -> list[psutil.Process]:
    """API, control worker, beat, broker, `up` itself, the workers, the runtime and the database."""
    ours = [psutil.Process(worker.pid) for worker in yard.workers.values()]
    ours.append(psutil.Process(yard.runtime.process.pid))
    below = [child for process in ours for child in process.children(recursive=True)]
    return yard.installation.everyone() + ours + below + (cluster.processes() if cluster else [])


@contextmanager
def asleep(processes: Sequence[psutil.Process]) -> Iterator[None]:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def run_through(yard: Yard, prefix: str) -> Submitted:
    yard.runtime.reset()
    batch = yard.submit(marked(prefix, ROWS, f"latency_ms={LATENCY_SECONDS * 1000:.0f}"))
    batch.stored(60)
    return batch


def assert_nobody_was_lost(yard: Yard, batch: Submitted, prefix: str) -> None:
    batch.ended(seconds=120)
    assert_each_row_once(batch, prefix, ROWS)
    again = yard.runtime.stats()["requests"] - ROWS
    assert again <= AT_ONCE * (1 + 5 / LATENCY_SECONDS), "what was in flight, and five seconds of work (DESIGN 7)"
    seen = {event["type"] for event in yard.events(batch.id)}
    assert not seen & {"lease.expired", "job.cautious", "job.row_lost"}
    assert all(worker.alive for worker in yard.workers.values())
    until(lambda: yard.http.get("/readyz").is_success, "all is well")


def absences(yard: Yard) -> int:
    return sum(event["type"] == "service.absence" for event in yard.events("api"))


def test_a_machine_that_slept_for_longer_than_its_leases_loses_repeats_and_blames_nothing(
    yard: Yard, cluster: Cluster | None
) -> None:
    """No lease expires (FT-09), and what is given up was only what was in flight."""
    pids = yard.ready["pids"]
    batch = run_through(yard, "asleep")
    before = absences(yard)
    with asleep(everybody(yard, cluster)):
        time.sleep(ASLEEP_SECONDS)  # that is the fault
    assert_nobody_was_lost(yard, batch, "asleep")
    assert absences(yard) > before
    assert yard.ready["pids"] == pids, "no process had to be started again"


def test_an_api_that_is_away_for_longer_than_leases_live_ends_none_of_them(yard: Yard) -> None:
    """With beat, control worker and database in perfect health: the sweeps run all the while."""
    batch = run_through(yard, "deaf")
    before = absences(yard)
    with yard.frozen("api"):
        time.sleep(ASLEEP_SECONDS)  # that is the fault
    assert_nobody_was_lost(yard, batch, "deaf")
    assert absences(yard) > before
    for worker in yard.workers.values():
        assert "lease.self_stopped" in worker.log.read_text(), (
            "a lease may be others' by then, for all it knows (LS-05)"
        )


def test_a_worker_that_dies_after_the_machine_woke_is_missed_as_ever(yard: Yard, cluster: Cluster | None) -> None:
    """The time that was slept is given once, and to nobody who is heard of afterwards."""
    batch = run_through(yard, "woken")
    with asleep(everybody(yard, cluster)):
        time.sleep(ASLEEP_SECONDS)  # that is the fault
    before = yard.runtime.stats()["requests"]
    until(lambda: yard.runtime.stats()["requests"] >= before + AT_ONCE, "work goes on")
    yard.kill_at_work("two")
    batch.ended(seconds=120)
    assert_each_row_once(batch, "woken", ROWS)
    assert "lease.expired" in {event["type"] for event in yard.events(batch.id)}
