"""Beat and the control worker are away for good: the API process does what they did."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 600


@pytest.fixture
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with Yard(tmp_path_factory.mktemp("yard"), shard_rows=64) as yard:
        yard.start()
        yard.worker("one")
        yard.worker("two")
        yard.until_present("one", "two")
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
        batch.stored(50, seconds=120)
        yard.workers["two"].kill()
        batch.ended(seconds=120)
        assert_each_row_once(batch, "row", ROWS)
        assert "lease.expired" in {event["type"] for event in yard.events(batch.id)}
    finally:
        up.send_signal(signal.SIGCONT)
