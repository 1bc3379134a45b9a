"""Parts that are missing: beat and the control worker for good, and a worker that is told to go while it starts."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 600
TRIES = 5


@pytest.fixture(scope="module")
def yard(breakable_yard: Yard) -> Iterator[Yard]:
    with breakable_yard.manned("one", "two") as yard:
        yield yard


def test_a_batch_is_validated_taken_over_and_finished_without_beat_and_control_worker(yard: Yard) -> None:
    up = yard.installation.process
    assert up is not None
    gone = [yard.pid("beat"), yard.pid("control")]
    up.send_signal(signal.SIGSTOP)  # or it would start others
    try:
        for pid in gone:
            os.kill(pid, signal.SIGKILL)
        batch = yard.submit(marked("row", ROWS, "latency_ms=150"))
        batch.stored(50, seconds=60)
        yard.kill_at_work("two")
        batch.ended(seconds=60)
        assert_each_row_once(batch, "row", ROWS)
        assert "lease.expired" in {event["type"] for event in yard.events(batch.id)}
    finally:
        up.send_signal(signal.SIGCONT)


def test_a_worker_that_is_told_to_stop_before_celery_is_ready_drains_as_any_other(yard: Yard) -> None:
    """It may hold leases from its first heartbeat on, and Celery takes a moment more until it listens."""
    for _ in range(TRIES):
        worker = yard.worker("early")
        worker.until_it_says("worker.ready")
        worker.send(signal.SIGTERM)
        code = until(lambda: None if worker.exit_code is None else (worker.exit_code,), "it ends")  # noqa: B023 - now
        log = worker.log.read_text()
        assert code == (0,), log
        assert yard.http.get("/v1/workers/early").json()["state"] == "gone", log
        if "ready. " not in log.replace("worker.ready ", ""):
            return  # the signal was early enough to show it
        worker.log.unlink()
    pytest.fail("no signal came before Celery was ready")
