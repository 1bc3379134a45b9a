"""One ring lets one thread look; a ring that finds everybody busy is not lost."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.control.beats import Beats
from app.control.work import BatchWork, WorkBell
from app.db.store import Store
from app.services.context import Yard
from app.sweeps.sweeper import Sweeper

LONG = 20.0


class Sleepers:
    """Threads that wait for the bell once each."""

    def __init__(self, bell: WorkBell, count: int) -> None:
        self.woken = threading.Semaphore(0)
        self._bell = bell
        self.threads = [threading.Thread(target=self._sleep, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _sleep(self) -> None:
        self._bell.wait(LONG)
        self.woken.release()


def test_one_ring_wakes_one_thread() -> None:
    bell = WorkBell(3)
    sleepers = Sleepers(bell, 3)
    bell.ring()
    assert sleepers.woken.acquire(timeout=5)
    assert not sleepers.woken.acquire(timeout=0.2)
    bell.ring(2)
    assert sleepers.woken.acquire(timeout=5)
    assert sleepers.woken.acquire(timeout=5)


def test_a_ring_that_nobody_waits_for_is_heard_by_the_next_who_does() -> None:
    bell = WorkBell(2)
    bell.ring()
    begun = time.monotonic()
    bell.wait(LONG)
    assert time.monotonic() - begun < LONG / 2


def test_rings_are_kept_for_as_many_as_there_are_threads() -> None:
    bell = WorkBell(1)
    bell.ring(5)
    bell.wait(0)
    begun = time.monotonic()
    bell.wait(0.05)
    assert time.monotonic() - begun >= 0.05


@pytest.fixture
def away(yard: Yard, tmp_path: Path) -> Yard:
    """A yard whose database cannot be opened."""
    place = tmp_path / "away"
    place.mkdir()
    return replace(yard, store=Store(f"sqlite:///{place}"))


def test_a_database_that_is_away_is_a_line_a_look_and_no_trace(
    away: Yard, caplog: pytest.LogCaptureFixture, until: Callable[..., None]
) -> None:
    """Work and sweeps look many times a minute, for as long as it is away."""
    stopping = threading.Event()
    beats = Beats(away, name="control", install_id="control", boot_id="control", stopping=stopping)
    beats.worker_id = "wrk_1"
    bell = WorkBell(1)
    work = BatchWork(away, beats, bell, stopping)
    sweeper = Sweeper(away, periods={"requeue": 3600.0}, runner="control", stopping=stopping)
    threads = [threading.Thread(target=run, daemon=True) for run in (work.run, sweeper.run)]
    with caplog.at_level(logging.WARNING):
        for thread in threads:
            thread.start()
        sweeper.tick("requeue")
        until(lambda: len(caplog.records) >= 2)
        stopping.set()
        bell.ring()
        sweeper.tick("")
        for thread in threads:
            thread.join(10)
    assert {record.exc_info for record in caplog.records} == {None}
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "control work cannot be claimed: the database file cannot be used" in said
    assert "a pass of requeue failed" in said
