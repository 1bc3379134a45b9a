"""Phase `setup`: heartbeat yes, claim no, from the hello until what the worker needs is there (PH-01, PH-07, BO-09)."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from app.domain.workers import PHASES, ByeReason, Phase, Transport
from app.worker.agent import Agent
from app.worker.setting_up import SettingUp
from app.worker.spool import PROBE
from tests.fakes.control_plane import FakeControlPlane, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


def phases(plane: FakeControlPlane) -> list[str]:
    """What the hello and the beats said, each once."""
    said = [call.body["phase"] for call in plane.calls if call.route in {"register", "heartbeat"}]
    return [phase for number, phase in enumerate(said) if said[:number][-1:] != [phase]]


def beaten(plane: FakeControlPlane, beats: int = 3) -> None:
    before = len(plane.called("heartbeat"))
    plane.wait(lambda: len(plane.called("heartbeat")) >= before + beats)


@pytest.mark.parametrize("transport", [Transport.CELERY, Transport.HTTP])
def test_it_is_heard_of_and_claims_nothing_until_a_runtime_is_up(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, transport: Transport
) -> None:
    runtime.alive = False
    runtime.let_all()
    plane.give_batch(list(rows(4)))
    agent = start_agent(transport=transport, wait_max_seconds=0.1)
    beaten(plane)
    agent.run_batch("batch_1")
    assert agent.phase is Phase.SETUP
    assert not plane.called("claim")
    assert {call.body["free"] for call in plane.called("poll")} <= {0}
    assert bool(plane.called("poll")) == (transport is Transport.HTTP), "in set-up it still hears commands (R-26)"
    runtime.alive = True
    plane.wait(lambda: len(plane.stored) == 4)
    agent.on_signal()
    assert agent.join(30)
    assert phases(plane)[:3] == ["booting", "setup", "ready"]


def test_a_state_directory_that_cannot_be_written_is_waited_for(
    plane: FakeControlPlane, start_agent: StartAgent, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "state" / "spool" / PROBE  # nothing can be written there, whoever runs this
    in_the_way.mkdir(parents=True)
    agent = start_agent()
    beaten(plane)
    assert agent.phase is Phase.SETUP
    assert "IsADirectoryError" in plane.called("heartbeat")[-1].body["sample"]["spool_error"]
    in_the_way.rmdir()
    agent._sender.wake()
    plane.wait(lambda: agent.phase is Phase.READY)


def test_a_state_directory_that_is_removed_later_costs_no_row(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path
) -> None:
    plane.give_batch(list(rows(8)))
    start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    shutil.rmtree(tmp_path / "state")
    runtime.let_all()
    plane.wait(lambda: set(plane.stored) == set(range(8)))
    plane.wait((tmp_path / "state" / "spool").is_dir)


def test_a_runtime_that_goes_away_later_is_no_set_up(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = start_agent()
    runtime.alive = False
    agent._probes.wake()
    plane.wait(
        lambda: any(not told["alive"] for beat in plane.called("heartbeat") for told in beat.body["runtimes"] or [])
    )
    beaten(plane)
    assert phases(plane) == ["booting", "ready"]


def test_what_sets_a_ready_worker_up_keeps_it_from_claiming_and_costs_what_runs_nothing(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """SU-11: ready, setup, ready. What it holds it finishes."""
    plane.give_batch(list(rows(8)))
    agent = start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    plane.wait(lambda: len(plane.leases) == 2)
    lacking: list[str | None] = ["set-up command 7 runs"]
    agent._setting_up.need(lambda: lacking[0])
    plane.wait(lambda: any(beat.body["phase"] == "setup" for beat in plane.called("heartbeat")))
    claims = len(plane.called("claim"))
    runtime.let_all()
    plane.wait(lambda: len(plane.stored) == 8)
    plane.give_batch(list(rows(4)), batch_id="batch_2")
    agent.run_batch("batch_2")
    beaten(plane)
    assert len(plane.called("claim")) == claims
    lacking[0] = None
    agent._setting_up.wake()
    plane.wait(lambda: len(plane.stored) == 4)
    assert phases(plane) == ["booting", "ready", "setup", "ready"]


def test_an_idle_worker_counts_its_time_from_when_it_is_ready(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """Else a model that loads for longer than that would never be used (ID-02)."""
    runtime.alive = False
    agent = start_agent(keep_alive_seconds=0.3)
    beaten(plane, 4)
    assert not agent.join(0)
    runtime.alive = True
    assert agent.join(30)
    assert plane.called("bye")[0].body["reason"] == "idle"


def test_the_end_of_a_share_begins_an_idle_workers_time_anew(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """What ran for longer than the worker may idle is no idleness (ID-02)."""
    now = [1000.0]
    plane.give_batch(list(rows(4)))
    agent = start_agent(clock=lambda: now[0], keep_alive_seconds=30)
    runtime.wait(lambda: len(runtime.running) == 4)
    now[0] += 29
    runtime.let_all()
    plane.wait(lambda: plane.states() == {1: "reported"} and not agent._shares.all())
    now[0] += 29
    beaten(plane)
    assert agent.phase is Phase.READY
    now[0] += 2
    assert agent.join(30)
    assert plane.called("bye")[0].body["reason"] == "idle"


def test_a_worker_that_is_being_set_up_can_be_drained(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    runtime.alive = False
    agent = start_agent()
    assert agent.drain(ByeReason.DRAIN)
    assert agent.join(30)
    runtime.alive = True
    agent._setting_up.look()
    assert agent.phase is Phase.TERMINATING, "who drains is never ready again"
    assert plane.called("bye")[0].body["reason"] == "drain"


@pytest.mark.parametrize(("before", "after"), [*product(Phase, Phase)])
def test_all_phases_against_all_phases(before: Phase, after: Phase) -> None:
    allowed = {
        ("booting", "setup"),
        ("booting", "terminating"),
        ("setup", "ready"),
        ("setup", "draining"),
        ("setup", "terminating"),
        ("ready", "setup"),
        ("ready", "draining"),
        ("ready", "terminating"),
        ("draining", "terminating"),
    }
    assert (after in PHASES[before]) == ((before.value, after.value) in allowed)


class TestWhatIsNeeded:
    def test_is_crossed_off_once_for_all(self) -> None:
        told: list[bool] = []
        lacks: list[str | None] = ["a", "b"]
        setting_up = SettingUp([lambda: lacks[0], lambda: lacks[1]], on_change=told.append)
        setting_up.look()
        lacks[0] = None
        setting_up.look()
        lacks[0], lacks[1] = "a again", None
        setting_up.look()
        assert told == [True]

    def test_may_be_one_thing_more(self) -> None:
        told: list[bool] = []
        more: list[str | None] = ["c"]
        setting_up = SettingUp([], on_change=told.append)
        setting_up.look()
        setting_up.need(lambda: more[0])
        more[0] = None
        setting_up.look()
        assert told == [True, False, True]
