"""Leaving: what is finished is handed in, what is not goes to another worker, and the control plane hears of it."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.domain.workers import ByeReason, Phase
from app.worker import drain, leaving
from app.worker.agent import STUCK_EXIT_CODE, Agent
from app.worker.watchdog import EXIT_SECONDS
from config.settings import WorkerSettings
from tests.fakes.control_plane import WAIT_SECONDS, Answer, Drip, FakeControlPlane, Hang, Lose, refusal, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


def running(plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, **settings: object) -> Agent:
    """Start an agent with two shards of four rows: the first is in flight, of the second no row began."""
    plane.segment_seconds = 30.0
    plane.give_batch(list(rows(8)))
    agent = start_agent(**settings)
    runtime.wait(lambda: len(runtime.running) == 4)
    plane.wait(lambda: len(plane.leases) == 2)
    return agent


def test_rows_in_flight_end_unstarted_leases_go_first_and_bye_comes_last(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = running(plane, runtime, start_agent)
    agent.on_signal()
    plane.wait(lambda: plane.states() == {1: "held", 2: "released"})
    assert runtime.cut == []
    runtime.let(0, 1)
    runtime.wait(lambda: len(runtime.finished) == 2)
    assert agent.phase is Phase.DRAINING
    runtime.let(2, 3)
    assert agent.join(10)
    assert (agent.exit_code, sorted(plane.stored), plane.states()[1]) == (0, [0, 1, 2, 3], "reported")
    assert runtime.started == [0, 1, 2, 3]
    bye = plane.called("bye")[0].body
    assert (bye["reason"], bye["inflight_abandoned"], bye["spooled"]) == ("signal", 0, [])
    assert [call.route for call in plane.calls if call.route != "heartbeat"][-1] == "bye"


def test_a_shard_that_is_not_complete_is_handed_in_and_released(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """DR-10, R-33, B-19."""
    plane.segment_seconds = 30.0
    plane.give_batch(list(rows(4)))
    agent = start_agent(max_concurrent_prompts=2)
    runtime.wait(lambda: len(runtime.running) == 2)
    agent.on_signal()
    plane.wait(lambda: any(call.body["phase"] == "draining" for call in plane.called("heartbeat")))
    plane.wait(lambda: not any(share.rows_waiting for share in agent._shares.all()))  # it says so before it is so
    runtime.let_all()
    assert agent.join(10)
    assert (sorted(plane.stored), plane.states()) == ([0, 1], {1: "released"})


def test_rows_that_outlive_the_grace_are_cut(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """FT-18, C-11."""
    agent = running(plane, runtime, start_agent, drain_seconds=0.3)
    runtime.let(0)
    runtime.wait(lambda: runtime.finished == [0] and len(runtime.running) == 4)  # the lane has taken the next row
    agent.drain(ByeReason.DRAIN)
    assert agent.join(10)
    assert sorted(runtime.cut) == [1, 2, 3, 4]
    assert (set(plane.stored), set(plane.states().values())) == ({0}, {"released"})
    assert plane.called("bye")[0].body["reason"] == "drain"


def test_bye_says_how_many_shards_were_left_with_rows_that_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that cannot be cut keep nobody, and what is said of them is true (BY-06)."""
    monkeypatch.setattr(drain, "HAND_IN_SECONDS", 0.5)
    runtime.is_deaf = True
    agent = running(plane, runtime, start_agent, drain_seconds=0.1, kill_after_seconds=0.1)
    runtime.let(0)
    runtime.wait(lambda: runtime.finished == [0] and len(runtime.running) == 4)
    agent.on_signal()
    assert agent.join(10)
    bye = plane.called("bye")[0].body
    assert (agent.exit_code, bye["reason"], bye["inflight_abandoned"]) == (0, "signal", 2)
    assert set(plane.stored) == {0}


def test_beats_go_on_to_the_end_and_say_how_far_it_is(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    def say(phase: str) -> None:
        plane.wait(lambda: phase in [call.body["phase"] for call in plane.called("heartbeat")])

    runtime.is_deaf = True
    agent = running(plane, runtime, start_agent, drain_seconds=30.0, kill_after_seconds=15.0)
    agent.on_signal()
    say("draining")
    agent.on_signal()
    say("terminating")
    runtime.let_all()
    assert agent.join(30)
    said = dict.fromkeys(call.body["phase"] for call in plane.called("heartbeat"))
    assert list(said)[-3:] == ["ready", "draining", "terminating"]


def test_a_second_signal_grants_no_more_time(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = running(plane, runtime, start_agent, drain_seconds=60.0)
    agent.on_signal()
    began = time.monotonic()
    agent.on_signal()
    assert agent.join(10)
    assert time.monotonic() - began < 5
    assert len(runtime.cut) == 4


def test_the_control_plane_may_ask_for_it(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = running(plane, runtime, start_agent)
    with plane.changed:
        plane.drain = True
    plane.wait(lambda: plane.states()[2] == "released")
    runtime.let_all()
    assert agent.join(10)
    assert plane.called("bye")[0].body["reason"] == "drain"


def test_a_worker_without_work_leaves_after_keep_alive(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    agent = start_agent(keep_alive_seconds=0.5)
    assert agent.join(10)
    assert plane.called("bye")[0].body["reason"] == "idle"


def test_with_keep_alive_0_it_does_what_there_is_and_leaves_with_the_first_word_that_there_is_no_more(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(4)))
    agent = start_agent(keep_alive_seconds=0)
    runtime.wait(lambda: len(runtime.running) == 4)
    beats = len(plane.called("heartbeat"))
    plane.wait(lambda: len(plane.called("heartbeat")) > beats + 2)
    assert agent.phase is Phase.READY, "nobody is idle who has rows in flight"
    runtime.let_all()
    assert agent.join(10)
    assert (sorted(plane.stored), plane.states()) == ([0, 1, 2, 3], {1: "reported"})
    assert plane.called("bye")[0].body["reason"] == "idle"


def test_with_keep_alive_0_a_late_answer_to_what_it_said_in_set_up_does_not_send_it_away(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, until: Callable[..., None]
) -> None:
    """Who is in set-up is told of no work; that says nothing of what waits for it now (ID-02)."""
    plane.timing["renew_seconds"] = 5.0
    late, next_one = threading.Event(), threading.Event()
    plane.next("heartbeat", Hang(late), Hang(next_one))
    runtime.alive = False
    agent = start_agent(keep_alive_seconds=0)
    plane.wait(lambda: plane.called("heartbeat"))
    runtime.alive = True
    agent._probes.wake()
    until(lambda: agent.phase is Phase.READY)
    late.set()
    plane.wait(lambda: len(plane.called("heartbeat")) == 2)
    assert [call.body["phase"] for call in plane.called("heartbeat")] == ["setup", "ready"]
    plane.give_batch(list(rows(4)))
    next_one.set()
    runtime.let_all()
    assert agent.join(20)
    assert sorted(plane.stored) == [0, 1, 2, 3]


def test_with_keep_alive_below_0_it_stays(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    """R-28."""
    agent = start_agent(keep_alive_seconds=-1)
    plane.wait(lambda: len(plane.called("heartbeat")) > 5)
    assert agent.phase is Phase.READY


def test_no_claim_is_sent_after_a_drain_began(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = running(plane, runtime, start_agent)
    agent.on_signal()
    claims = len(plane.called("claim"))
    agent.run_batch("batch_1")
    runtime.let_all()
    assert agent.join(10)
    assert len(plane.called("claim")) == claims


def test_a_control_plane_that_is_away_keeps_nobody_and_loses_nothing(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path
) -> None:
    """A-23, FT-20."""
    agent = running(plane, runtime, start_agent, drain_seconds=0.1, kill_after_seconds=0.5)
    plane.next("results", *[Answer(503)] * 100)
    plane.next("release", *[Answer(503)] * 100)
    plane.next("bye", Lose())
    runtime.let(0, 1, 2, 3)
    runtime.wait(lambda: len(runtime.finished) == 4)
    agent.on_signal()
    assert agent.join(40)
    assert agent.exit_code == 0
    assert plane.stored == {}
    assert len(list((tmp_path / "state" / "spool").iterdir())) >= 1
    assert plane.called("bye")[0].body["spooled"] == [1], "what is sent at the next start ends at its own time"
    plane._script.clear()
    calls = len(plane.calls)
    start_agent()
    assert [call.route for call in plane.calls[calls : calls + 2]] == ["results", "register"]
    assert set(plane.stored) == {0, 1, 2, 3}


def test_a_goodbye_whose_answer_never_ends_keeps_nobody(
    plane: FakeControlPlane, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "BYE_SECONDS", 0.5)
    gone = threading.Event()
    plane.next("bye", Drip(gone))
    agent = start_agent()
    began = time.monotonic()
    agent.on_signal()
    assert agent.join(30)
    gone.set()
    assert time.monotonic() - began < WAIT_SECONDS, "the answer went on for so long"
    assert agent.exit_code == 0


def test_a_part_that_cannot_be_closed_keeps_no_process(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close() -> None:
        raise OSError("the driver is gone")

    monkeypatch.setattr(runtime, "close", close)
    agent = start_agent()
    agent.on_signal()
    assert agent.join(30)
    assert len(plane.called("bye")) == 1


@pytest.fixture
def watched(plane: FakeControlPlane, runtime: SteeredExecutor, tmp_path: Path) -> tuple[Agent, list[tuple[float, int]]]:
    """An agent, and in how many seconds which exit code was to end its process whatever hangs in it."""
    found: list[tuple[float, int]] = []
    settings = WorkerSettings(
        server_url=plane.url,
        api_key=SecretStr("gk-test"),
        worker_name="gpu-1",
        state_dir=tmp_path / "state",
        drain_seconds=3.0,
        kill_after_seconds=2.0,
    )
    agent = Agent(settings, [runtime], watch=lambda seconds, code: found.append((seconds, code)))
    agent.start()
    return agent, found


def test_a_drain_has_a_last_resort_from_its_first_moment(watched: tuple[Agent, list[tuple[float, int]]]) -> None:
    agent, found = watched
    agent.on_signal()
    agent.on_signal()
    assert agent.join(30)
    assert found == [(3.0 + 2.0 + drain.HAND_IN_SECONDS + EXIT_SECONDS, STUCK_EXIT_CODE)]


class TestDismissal:
    def test_has_a_last_resort_too(
        self, plane: FakeControlPlane, watched: tuple[Agent, list[tuple[float, int]]]
    ) -> None:
        """Something may hang in a process that nobody wants any more, too: it ends, and says that it was dismissed."""
        agent, found = watched
        plane.next("heartbeat", refusal(401))
        assert agent.join(30)
        assert found == [(2.0 + EXIT_SECONDS, 1)]

    @pytest.mark.parametrize("no", [refusal(401), refusal(403), refusal(412), refusal(426), refusal(409, "superseded")])
    def test_stops_all_jobs_keeps_the_spool_and_exits_1(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, no: Answer, tmp_path: Path
    ) -> None:
        agent = running(plane, runtime, start_agent)
        plane.next("results", *[no] * 5)
        plane.next("release", *[no] * 5)
        runtime.let(0)
        runtime.wait(lambda: runtime.finished == [0])
        plane.next("heartbeat", no)
        assert agent.join(20)
        assert (agent.exit_code, agent.exit_reason) == (1, "no")
        assert len(runtime.cut) >= 3
        assert runtime.running == set()
        assert plane.called("bye") == []
        assert plane.stored == {}
        assert len(list((tmp_path / "state" / "spool").iterdir())) == 1

    @pytest.mark.parametrize("route", ["claim", "results"])
    def test_by_any_call_ends_the_worker(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, route: str
    ) -> None:
        plane.give_batch(list(rows(4)))
        plane.next(route, refusal(401))
        runtime.let_all()
        agent = start_agent()
        assert agent.join(20)
        assert agent.exit_code == 1

    @pytest.mark.parametrize("no", [refusal(409, "name_taken"), refusal(400, "unknown_pool"), refusal(426)])
    def test_at_hello_is_exit_1(self, plane: FakeControlPlane, start_agent: StartAgent, no: Answer) -> None:
        plane.next("register", no)
        with pytest.raises(SystemExit) as left:
            start_agent()
        assert left.value.code == 1

    def test_at_hello_leaves_nothing_for_a_signal_or_celerys_end_to_do(
        self, plane: FakeControlPlane, tmp_path: Path
    ) -> None:
        plane.next("register", refusal(426))
        key = SecretStr("gk-test")
        settings = WorkerSettings(server_url=plane.url, api_key=key, worker_name="gpu-1", state_dir=tmp_path / "state")
        agent = Agent(settings, [SteeredExecutor()])
        with pytest.raises(SystemExit):
            agent.start()
        agent.on_signal()
        agent.on_shutdown()
        assert agent.join(0)
        assert agent.exit_code == 1


_WORKER = """
import sys, time
from pathlib import Path
from pydantic import SecretStr
from app.worker.agent import STUCK_EXIT_CODE, Agent
from config.settings import WorkerSettings
from executors.fakes import FakeExecutor
from executors.settings import ExecutorSettings
settings = WorkerSettings(server_url=sys.argv[1], api_key=SecretStr("gk-test"), worker_name="gpu-1",
                          state_dir=Path(sys.argv[2]), max_concurrent_prompts=4)
Agent(settings, [FakeExecutor(ExecutorSettings(), "fake:")]).start()
time.sleep(60)
"""


def test_what_a_killed_worker_had_spooled_is_sent_before_the_next_hello(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, tmp_path: Path
) -> None:
    plane.give_batch(list(rows(4)))
    plane.next("results", *[Answer(503)] * 1000)
    argv = [sys.executable, "-c", _WORKER, plane.url, str(tmp_path / "state")]
    with subprocess.Popen(argv) as process:
        plane.wait(lambda: plane.called("results"), 30)
        process.kill()
    plane._script.clear()
    calls = len(plane.calls)
    start_agent()
    assert [call.route for call in plane.calls[calls : calls + 2]] == ["results", "register"]
    assert (len(plane.stored), plane.states()) == (4, {1: "reported"})
    assert runtime.started == []


def test_a_claim_that_is_out_when_the_drain_begins_is_waited_for_and_what_it_brings_goes_back(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    agent = start_agent()
    plane.wait(lambda: plane.called("heartbeat"))
    answered = threading.Event()
    plane.next("claim", Hang(answered))
    plane.give_batch(list(rows(4)))
    plane.wait(lambda: plane.called("claim"))
    agent.on_signal()
    plane.wait(lambda: any(call.body["phase"] == "draining" for call in plane.called("heartbeat")))
    answered.set()
    assert agent.join(10)
    assert (plane.states(), runtime.started) == ({1: "released"}, [])
    assert [call.route for call in plane.calls if call.route in {"release", "bye"}] == ["release", "bye"]
