"""A store of contents that hangs stops the sweep that reads contents, in a thread of its own, and no other sweep."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from app.db import sweeps as sweeps_sql
from app.db.tables import SweepState
from app.services import readiness
from app.services.context import Yard
from app.sweeps.election import ALONE, READS_CONTENTS, SWEEPS, run_pass
from app.sweeps.sweeper import Sweepers
from tests.fakes.hanging_blobs import HangingBlobs
from tests.interleaving import doing
from tests.yards import later

Until = Callable[..., None]
OTHERS = SWEEPS.keys() - READS_CONTENTS


@pytest.fixture
def store_of_contents(tmp_path: Path) -> Iterator[HangingBlobs]:
    """A store whose server is away."""
    found = HangingBlobs(tmp_path / "blobs")
    found.go_away()
    yield found
    if found._pipe.exists():
        found.come_back()


@pytest.fixture
def away(yard: Yard, store_of_contents: HangingBlobs) -> Yard:
    return replace(yard, blobs=store_of_contents)


def last_runs(yard: Yard) -> dict[str, datetime]:
    with yard.store.read() as session:
        return dict(sweeps_sql.last_runs(session))


def state_of(yard: Yard, name: str) -> SweepState:
    with yard.store.read() as session:
        return session.get_one(SweepState, name)


def test_the_other_sweeps_go_on_in_every_process_and_the_pass_ends_when_the_store_is_back(
    away: Yard, store_of_contents: HangingBlobs, until: Until
) -> None:
    stopping = threading.Event()
    periods = dict.fromkeys(SWEEPS, 0.1)
    processes = [Sweepers(away, periods=periods, runner=name, stopping=stopping) for name in ("one", "two")]
    threads = [thread for each in processes for thread in each.threads()]
    for thread in threads:
        thread.start()
    try:
        until(lambda: store_of_contents.hanging)
        before = last_runs(away)
        until(lambda: all(last_runs(away).get(name, before["retention"]) > before["retention"] for name in OTHERS))
        first = last_runs(away)

        def both_have_looked() -> bool:
            for each in processes:
                each.tick("retention")
            return all(last_runs(away)[name] > first[name] for name in OTHERS)

        until(both_have_looked)
        assert store_of_contents.hanging == 1, "a second pass was begun beside one that hangs"
        assert state_of(away, "retention").last_run_at == before["retention"]
        store_of_contents.come_back()
        until(lambda: last_runs(away)["retention"] > before["retention"])
    finally:
        stopping.set()
        for each in processes:
            each.tick("")
        for thread in threads:
            thread.join(20)
    assert not [thread for thread in threads if thread.is_alive()]
    assert state_of(away, "retention").unfinished_since is None


def test_a_pass_that_hangs_is_reported_and_joined_after_a_while_in_case_its_runner_died(
    away: Yard, store_of_contents: HangingBlobs, until: Until
) -> None:
    first = doing(lambda: run_pass(away, "retention", 1, "one"))
    until(lambda: store_of_contents.hanging == 1)
    began = state_of(away, "retention").unfinished_since
    assert began == state_of(away, "retention").last_run_at
    later(away, 120)
    assert run_pass(away, "retention", 1, "two") is None
    assert run_pass(away, "requeue", 1, "two") is not None
    with away.store.read() as session:
        assert readiness.unfinished_seconds(session.get_one(SweepState, "retention"), away.store.now(session)) >= 120
    later(away, ALONE.total_seconds())
    second = doing(lambda: run_pass(away, "retention", 1, "two"))
    until(lambda: store_of_contents.hanging == 2)
    assert state_of(away, "retention").unfinished_since == began, "it is as old as the first pass"
    store_of_contents.come_back()
    assert first.result() is not None
    assert second.result() is not None
    assert state_of(away, "retention").unfinished_since is None


def test_a_runner_that_was_started_again_waits_for_no_pass_of_its_own(away: Yard, yard: Yard) -> None:
    """It was killed in the midst of one: the name of a control worker stays with its place."""
    with yard.store.begin() as session:
        now = yard.store.now(session)
        session.add(SweepState(name="retention", last_run_at=now, runner="one", unfinished_since=now))
    later(yard, 60)
    assert run_pass(yard, "retention", 1, "two") is None
    assert run_pass(yard, "retention", 1, "one") is not None
    assert state_of(yard, "retention").unfinished_since is None


def test_a_pass_that_fails_has_ended(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_yard: Yard, _limit: int) -> dict[str, int]:
        raise OSError("it broke")

    monkeypatch.setattr("app.sweeps.election.SWEEPS", {"retention": broken})
    with pytest.raises(OSError, match="it broke"):
        run_pass(yard, "retention", 1, "one")
    assert state_of(yard, "retention").unfinished_since is None


def test_who_asks_whether_the_service_is_ready_is_told_that_the_store_and_a_pass_hang(
    away: Yard, store_of_contents: HangingBlobs, until: Until
) -> None:
    hung = doing(lambda: run_pass(away, "retention", 1, "one"))
    until(lambda: store_of_contents.hanging == 1)
    later(away, 120)
    for _ in range(3):
        found = readiness.look(away, for_anybody=True)
        assert not found.ready
        assert "the store of contents hangs: it has not answered for" in found.parts["blobs"]
        assert found.parts["database"] == found.parts["schema"] == "ok"
        assert found.hanging_sweep_seconds.keys() == {"retention"}
        assert found.hanging_sweep_seconds["retention"] >= 120
    assert store_of_contents.hanging == 2, "each look took a thread of its own"
    assert store_of_contents.free_bytes() is None
    store_of_contents.come_back()
    assert hung.result() is not None
    until(lambda: readiness.look(away, for_anybody=True).ready)
    assert readiness.look(away, for_anybody=True).hanging_sweep_seconds == {}
    assert store_of_contents.free_bytes()
