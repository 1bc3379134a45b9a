"""Workers whose clocks are an hour off, both ways: no rule asks a worker what time it is (PROTOCOL 1)."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import TOLERATION_SECONDS, Yard

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

SOURCE = Path(__file__).parents[1] / "fakes" / "other_clock.c"
HOUR = 3600
ROWS = 600


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clock that is preloaded; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    found = tmp_path_factory.mktemp("clock") / "other_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(found), str(SOURCE), "-ldl"], check=True)
    return found


@pytest.fixture
def yard(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Yard]:
    with Yard(tmp_path_factory.mktemp("yard"), shard_rows=64) as yard:
        yard.start()
        for name, seconds in (("ahead", HOUR), ("behind", -HOUR)):
            clock = ("env", f"LD_PRELOAD={library}", f"OTHER_CLOCK_SECONDS={seconds}")
            yard.worker(name, through=clock)
        yard.until_present("ahead", "behind")
        yield yard


@pytest.mark.long
def test_they_work_and_one_that_dies_is_missed_when_any_other_would_be(yard: Yard) -> None:
    stamps = [worker.log.read_text().splitlines()[-1].partition(":")[0] for worker in yard.workers.values()]
    assert stamps[0] > stamps[1], "their logs show that their clocks are off"
    batch = yard.submit(marked("row", ROWS, "latency_ms=150"))
    batch.stored(100)
    held = {event["data"]["worker"] for event in yard.events(batch.id) if event["type"] == "lease.granted"}
    assert held >= {"ahead", "behind"}
    assert "lease.expired" not in {event["type"] for event in yard.events(batch.id)}
    yard.workers["ahead"].kill()
    killed_at = max(event["at"] for event in yard.events(batch.id))

    batch.ended(seconds=90)
    assert_each_row_once(batch, "row", ROWS)
    expired = [event["at"] - killed_at for event in yard.events(batch.id) if event["type"] == "lease.expired"]
    assert expired
    assert all(after < TOLERATION_SECONDS + 10 for after in expired)
