"""The kill test in small: everything is killed, emptied, frozen and drained, and every row ends once."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.forms import FULL, OF_WORKERS, QUICK, WORKERS, Form
from tests.chaos.kill_test import kill_test
from tests.chaos.schedule import schedule
from tests.chaos.stalls import Stalls
from tests.cluster import Cluster

SEED = 24
"""What stays away for long goes early, so that the run is short."""
log = logging.getLogger("figures")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])])
def database_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """None: the yard's own SQLite file."""
    if request.param == "sqlite":
        yield None
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    name = cluster.create()
    yield cluster.url(name)
    cluster.drop(name)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_whatever_is_killed_every_row_ends_once(tmp_path: Path, database_url: str | None) -> None:
    report = kill_test(QUICK, SEED, tmp_path, database_url=database_url)
    log.info("%s", report.text())
    assert report.failed == [], report.text()


def test_what_the_machine_stood_still_for_counts_as_far_as_it_fell_into_a_wait() -> None:
    stalls = Stalls()
    stalls.found += [(10.0, 12.0), (20.0, 20.5)]
    assert stalls.between(11, 20.25) == 1.25
    assert stalls.between(13, 19) == 0
    assert (stalls.longest, stalls.seconds) == (2, 2.5)


def test_a_bound_of_time_is_stretched_by_no_more_than_the_load() -> None:
    stalls = Stalls()
    stalls.loads += [(10.0, 0.5), (20.0, 3.0)]
    assert [stalls.stretch(at) for at in (5, 12, 21)] == [1, 1, 1.5]


def test_a_seed_gives_the_same_faults_again_and_another_seed_others() -> None:
    assert schedule(FULL, 1) == schedule(FULL, 1)
    assert schedule(FULL, 1) != schedule(FULL, 2)


@pytest.mark.parametrize("form", [FULL, QUICK], ids=["full", "quick"])
def test_every_schedule_holds_all_faults_between_the_first_rows_and_the_last(form: Form) -> None:
    for seed in range(50):
        faults = schedule(form, seed)
        assert len(faults) == sum(form.worker_faults.values()) + sum(form.part_faults.values())
        assert all(0 < fault.at_rows < form.rows for fault in faults)
        assert {fault.target for fault in faults if fault.kind in OF_WORKERS} == set(WORKERS)
