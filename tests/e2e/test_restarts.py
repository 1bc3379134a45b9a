"""Any part of the control side may be killed in mid-run, or run twice: every row ends once."""

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import LATER_ON_SQLITE, LATER_WITHOUT_BROKER, ON_POSTGRES
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import CELERY, Yard, until

# All of it on both databases and without a broker by `make test-long`; the kill test runs on SQLite by default.
pytestmark = [
    pytest.mark.parametrize("fleet", [LATER_ON_SQLITE, LATER_WITHOUT_BROKER, ON_POSTGRES], indirect=True),
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

ROWS = 1000


@pytest.fixture(scope="module")
def yard(fleet_yard: Yard) -> Iterator[Yard]:
    with fleet_yard.manned("one", "two") as yard:
        yield yard


def run_through(yard: Yard, prefix: str, latency_ms: int = 40) -> Submitted:
    """A batch of which some rows are stored and most are not."""
    batch = yard.submit(marked(prefix, ROWS, f"latency_ms={latency_ms}"))
    batch.stored(50)
    return batch


@pytest.mark.parametrize(
    "parts", [pytest.param(["api"], marks=pytest.mark.long), ["api", "control", "beat", "broker"]], ids="+".join
)
def test_parts_that_are_killed_start_again_and_nothing_is_lost_or_doubled(yard: Yard, parts: list[str]) -> None:
    """FT-10."""
    prefix = "-".join(parts)
    batch = run_through(yard, prefix)
    for part in parts:
        os.kill(yard.ready["pids"][part], signal.SIGKILL)

    batch.ended(seconds=90)

    assert_each_row_once(batch, prefix, ROWS)
    for part in parts:
        yard.pid(part)
    assert all(worker.alive for worker in yard.workers.values())


def test_a_control_worker_killed_before_the_end_leaves_the_files_to_the_next(yard: Yard) -> None:
    batch = run_through(yard, "files")
    batch.stored(ROWS - 100)
    yard.kill("control")
    batch.ended(seconds=90)
    assert_each_row_once(batch, "files", ROWS)


@pytest.mark.long
def test_a_second_beat_and_a_second_control_worker_do_no_harm(yard: Yard) -> None:
    beat = yard.run("beat-2", *CELERY, "app", "beat")
    control = yard.run("control-2", *CELERY, "app.celery_control", "worker", "-Q", "control", "-n", "second@%h")
    control.until_it_says("ready.")
    try:
        batch = run_through(yard, "twice", latency_ms=100)
        yard.kill_at_work("two")
        batch.ended(seconds=90)

        assert_each_row_once(batch, "twice", ROWS)
        ended = Counter(
            (event["type"], event["data"]["lease"])
            for event in yard.events(batch.id)
            if event["type"] in {"lease.reported", "lease.expired", "lease.released", "lease.revoked"}
        )
        assert {kind for kind, _ in ended} >= {"lease.reported", "lease.expired"}
        assert len({lease for _, lease in ended}) == ended.total()
        ends = [event["type"] for event in yard.events(batch.id) if event["type"].startswith("batch.")]
        assert ends.count("batch.finalizing") == ends.count("batch.completed") == 1
        assert beat.alive
        assert control.alive
    finally:
        codes = (beat.stop(), control.stop())
    assert codes == (0, 0)


def test_a_worker_that_starts_again_hands_back_what_it_held(yard: Yard) -> None:
    """LS-08."""
    batch = run_through(yard, "again")
    yard.workers["one"].kill()
    yard.worker("one")
    yard.until_present("one")
    batch.ended(seconds=90)
    assert_each_row_once(batch, "again", ROWS)
    until(lambda: yard.http.get("/v1/workers/one").json()["state"] == "active", "the worker is active")


def test_a_worker_that_is_told_to_leave_finishes_its_rows_and_gives_back_the_rest(yard: Yard) -> None:
    yard.runtime.reset()
    batch = run_through(yard, "leave")
    assert yard.workers["one"].stop() == 0
    yard.worker("three")
    yard.until_present("three")
    batch.ended(seconds=90)

    assert_each_row_once(batch, "leave", ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    kinds = [event["type"] for event in yard.events(batch.id)]
    assert "lease.released" in kinds
    assert "lease.expired" not in kinds


def test_a_worker_that_an_admin_drains_leaves_and_nothing_of_it_runs_twice(yard: Yard) -> None:
    """By the command, with a batch running; its whole path over whatever transport the worker has."""
    yard.worker("four")
    yard.until_present("four")
    yard.runtime.reset()
    batch = run_through(yard, "drained")
    done = yard.command("worker", "drain", "four", "--wait", "--timeout", "40")
    assert done.returncode == 0, done
    assert "four has left" in done.stdout
    until(lambda: not yard.workers["four"].alive, "its process has ended")
    batch.ended(seconds=90)

    assert_each_row_once(batch, "drained", ROWS)
    assert yard.runtime.stats()["requests"] == ROWS
    four = yard.http.get("/v1/workers/four").json()
    assert four["state"] == "gone"
    said = [event for event in yard.events(four["id"]) if event["type"] == "worker.gone"]
    assert said[-1]["data"]["reason"] == "drain"
    assert said[-1]["data"]["inflight_abandoned"] == 0
