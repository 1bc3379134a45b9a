"""A worker's share of a batch against a control plane on a real socket: every row once, whatever goes wrong."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.rows import Blame, Reply, RowError, RowErrorCode
from app.domain.workers import Phase
from app.worker.agent import Agent
from tests.fakes.control_plane import Answer, Cut, FakeControlPlane, Hang, Lose, refusal, rows
from tests.fakes.steered_executor import SteeredExecutor

LOST = Lose()
StartAgent = Callable[..., Agent]


def lines(plane: FakeControlPlane) -> dict[int, dict[str, object]]:
    return {row: json.loads(line) for row, line in plane.stored.items()}


def all_reported(plane: FakeControlPlane) -> bool:
    return not plane.shards and bool(plane.leases) and set(plane.states().values()) == {"reported"}


def finish(plane: FakeControlPlane) -> None:
    plane.wait(lambda: len(plane.stored) == plane.rows and all_reported(plane))


def test_every_row_is_handed_in_once_and_every_shard_ended(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(30)))
    runtime.let_all()
    start_agent()
    finish(plane)
    assert [line["custom_id"] for _, line in sorted(lines(plane).items())] == [f"row-{n}" for n in range(30)]
    assert sorted(runtime.started) == list(range(30))


def test_no_more_prompts_are_in_flight_than_permitted(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(40)), shard_rows=10)
    start_agent(max_concurrent_prompts=3)
    runtime.wait(lambda: len(runtime.running) == 3)
    runtime.let_all()
    finish(plane)
    assert runtime.most_at_once == 3


@pytest.mark.parametrize(
    ("route", "trouble"),
    [
        ("claim", LOST),
        ("claim", Answer(503)),
        ("results", LOST),
        ("results", Answer(500)),
        ("content", Cut(20)),
        ("content", Answer(503)),
        ("heartbeat", LOST),
        ("progress", Answer(500)),
    ],
)
def test_a_lost_answer_costs_no_row_and_doubles_none(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, route: str, trouble: object
) -> None:
    plane.give_batch(list(rows(12)))
    plane.next(route, trouble, trouble)
    runtime.let_all()
    start_agent()
    finish(plane)
    assert sorted(runtime.started) == list(range(12))


def test_a_hand_in_is_sent_again_byte_for_byte(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(8)))
    plane.next("results", LOST, Answer(503))
    runtime.let_all()
    start_agent()
    finish(plane)
    plane.wait(lambda: len(plane.called("results")) >= 3)
    first, second, third = plane.called("results")[:3]
    assert first.raw == second.raw == third.raw


def test_rows_that_are_done_are_not_run_again(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(8)))
    plane.stored.update({1: b'{"custom_id":"row-1"}', 6: b'{"custom_id":"row-6"}'})
    runtime.let_all()
    start_agent()
    finish(plane)
    assert sorted(runtime.started) == [0, 2, 3, 4, 5, 7]


def test_a_rejected_row_is_answered_without_being_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(4)))
    plane.shards[0]["rejected"] = [{"row": 2, "code": "UNSUPPORTED_PARAMETER", "message": "no stream"}]
    runtime.let_all()
    start_agent()
    finish(plane)
    assert sorted(runtime.started) == [0, 1, 3]
    assert lines(plane)[2]["error"] == {"code": "UNSUPPORTED_PARAMETER", "message": "no stream"}


@pytest.mark.parametrize("bug", [ValueError("bug"), SystemExit(3), RecursionError()])
def test_whatever_one_row_raises_costs_that_row_and_no_thread(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, bug: BaseException
) -> None:
    def explode() -> Reply:
        raise bug

    plane.give_batch(list(rows(12)))
    runtime.answers = dict.fromkeys(range(6), explode)
    runtime.let_all()
    start_agent(max_concurrent_prompts=2)
    finish(plane)
    codes = {row: line["error"] and line["error"]["code"] for row, line in lines(plane).items()}  # type: ignore[index]
    assert codes == {row: "INTERNAL_ERROR" if row < 6 else None for row in range(12)}


def test_finished_rows_are_stored_while_others_still_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(4)))
    start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    runtime.let(0, 2)
    plane.wait(lambda: set(plane.stored) == {0, 2})
    assert plane.states() == {1: "held"}


def test_the_next_claim_is_sent_before_the_rows_in_hand_run_out(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(16)))
    start_agent(max_concurrent_prompts=4)
    runtime.wait(lambda: len(runtime.running) == 4)
    plane.wait(lambda: len(plane.leases) == 2)
    assert runtime.finished == []


def test_the_rest_of_a_batch_is_left_to_others_while_two_seconds_are_in_hand(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(100)))
    agent = start_agent(max_concurrent_prompts=4)
    runtime.wait(lambda: len(runtime.running) == 4)
    plane.wait(lambda: len(plane.leases) == 2)
    beats = len(plane.called("heartbeat"))
    plane.wait(lambda: len(plane.called("heartbeat")) > beats + 3)
    assert len(plane.leases) == 2
    agent.on_signal()


def test_a_shard_that_ends_while_another_is_handed_in_waits_for_the_clock(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """Else one hand-in would follow the other: there is always a shard that has ended meanwhile (PROTOCOL 5)."""
    plane.segment_seconds = 30.0
    plane.give_batch(list(rows(60)), shard_rows=4)
    answered = threading.Event()
    plane.next("results", Hang(answered))
    agent = start_agent(max_concurrent_prompts=8)
    runtime.wait(lambda: len(runtime.running) == 8)
    settler = agent._shares.all()[0]._settler

    def settled() -> int:
        return sum(shard.is_settled for shard in settler.shards())

    runtime.let(*range(4))
    plane.wait(lambda: settled() == 1)
    settler.wake()  # as the clock would
    plane.wait(lambda: plane.called("results"))
    runtime.let(*range(4, 8))
    plane.wait(lambda: settled() == 2)
    answered.set()
    plane.never(lambda: len(plane.called("results")) > 1, after=lambda: settled() == 1)
    runtime.let_all()
    finish(plane)


def test_what_is_finished_goes_home_before_the_last_rows_end(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    """Else the last rows would find a large hand-in on its way, and wait for it."""
    plane.segment_seconds = 60.0
    plane.give_batch(list(rows(40)), shard_rows=4)
    start_agent(max_concurrent_prompts=8)
    runtime.let(*range(28))
    runtime.wait(lambda: set(range(28, 36)) <= set(runtime.running))
    plane.wait(lambda: plane.called("results"))
    runtime.let_all()
    finish(plane)


def test_yield_ends_the_share_and_the_better_batch_comes_next(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(4)))
    plane.next("claim", *[None, Answer(200, {"no": "yield", "work": True})])
    start_agent()
    plane.wait(lambda: len(plane.called("claim")) >= 3)
    first, second, third = [call.body for call in plane.called("claim")[:3]]
    assert (first["started"], second["started"], third["started"]) == (False, True, False)
    assert third["batch_id"] is None
    assert len(runtime.running) == 4  # the old batch's last rows run on meanwhile


class TestStop:
    def test_cuts_the_rows_in_flight_hands_in_what_is_finished_and_releases(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.segment_seconds = 30.0
        plane.give_batch(list(rows(8)), shard_rows=8)
        start_agent()
        runtime.wait(lambda: len(runtime.running) == 4)
        runtime.let(0)
        runtime.wait(lambda: len(runtime.started) == 5)
        with plane.changed:
            plane.leases[1].state = "stopping"
        plane.wait(lambda: plane.states() == {1: "released"})
        assert set(plane.stored) == {0}
        assert len(runtime.started) == 5
        assert len(runtime.cut) == 4

    def test_rung_by_the_broker_is_asked_of_the_control_plane_at_once(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.timing |= {"renew_seconds": 60.0}
        plane.give_batch(list(rows(4)))
        agent = start_agent()
        runtime.wait(lambda: len(runtime.running) == 4)
        agent.beat_now("batch_of_somebody_else")
        agent.beat_now("batch_1")
        plane.wait(lambda: any(call.body["leases"] for call in plane.called("heartbeat")))
        assert runtime.cut == []  # a forged bell does nothing
        with plane.changed:
            plane.leases[1].state = "stopping"
        agent.beat_now("batch_1")
        plane.wait(lambda: plane.states() == {1: "released"})


class TestALostLease:
    def test_that_is_stale_is_dropped_at_once_and_nothing_is_sent(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.segment_seconds = 30.0
        plane.give_batch(list(rows(8)), shard_rows=4)
        start_agent(max_concurrent_prompts=8)
        runtime.wait(lambda: len(runtime.running) == 8)
        with plane.changed:
            plane.leases[1].state = "stale"
        runtime.wait(lambda: sorted(runtime.cut) == [0, 1, 2, 3])
        runtime.let_all()
        plane.wait(lambda: plane.states() == {1: "stale", 2: "reported"})
        assert set(plane.stored) == {4, 5, 6, 7}
        assert {part["lease_id"] for call in plane.called("results") for part in call.body["parts"]} == {2}

    @pytest.mark.parametrize("verdict", ["stale", "conflict"])
    def test_by_a_hand_ins_verdict_costs_only_its_own_shard(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, verdict: str
    ) -> None:
        plane.segment_seconds = 30.0
        plane.give_batch(list(rows(8)), shard_rows=4)
        plane.next(
            "results", Answer(200, {"parts": {"1": verdict, "2": "stored"}, "ends": {"1": "stale", "2": "ended"}})
        )
        runtime.let_all()
        agent = start_agent(max_concurrent_prompts=8)
        plane.wait(lambda: plane.called("results"))
        runtime.wait(lambda: len(runtime.finished) == 8)
        assert agent._shares.wait_none(5)  # the share has nothing left to wait for
        beats = len(plane.called("heartbeat"))
        plane.wait(lambda: len(plane.called("heartbeat")) > beats + 1)
        assert plane.called("heartbeat")[-1].body["leases"] == []
        assert agent.exit_code == 0

    @pytest.mark.parametrize("no", [refusal(403, "not_assigned"), refusal(409, "lease_lost"), refusal(400)])
    def test_by_a_refused_hand_in_ends_the_share_and_not_the_worker(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, no: Answer, tmp_path: Path
    ) -> None:
        plane.give_batch(list(rows(4)))
        plane.next("results", no)
        runtime.let_all()
        agent = start_agent()
        plane.wait(lambda: plane.called("results"))
        plane.give_batch(list(rows(4)), batch_id="batch_2")
        plane.wait(lambda: plane.states().get(2) == "reported")
        assert agent.phase is Phase.READY
        agent.on_signal()
        assert agent.join(20)
        assert list((tmp_path / "state" / "spool").iterdir()) == []

    def test_that_misses_rows_is_released(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.give_batch(list(rows(4)))
        plane.next("results", Answer(200, {"parts": {"1": "stored"}, "ends": {"1": "incomplete"}}))
        runtime.let_all()
        plane.segment_seconds = 30.0
        start_agent()
        plane.wait(lambda: plane.states()[1] == "released" if plane.leases else False)
        finish_second = plane.wait(lambda: plane.states().get(2) == "reported")
        assert finish_second


class TestSelfStop:
    def test_cuts_rows_while_the_heartbeat_hangs(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.timing |= {"renew_seconds": 0.2, "self_stop_seconds": 1.0}
        plane.give_batch(list(rows(4)))
        frozen = threading.Event()
        start_agent()
        runtime.wait(lambda: len(runtime.running) == 4)
        plane.next("heartbeat", *[Hang(frozen)] * 50)
        plane.next("results", *[Hang(frozen)] * 50)
        runtime.wait(lambda: len(runtime.cut) == 4)
        frozen.set()

    def test_hands_in_what_was_finished_and_gives_the_lease_back_when_the_control_plane_answers_again(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        """Its heartbeats list the lease until then: nobody takes it for forgotten meanwhile."""
        plane.timing |= {"self_stop_seconds": 1.0}
        plane.give_batch(list(rows(4)))
        plane.next("results", *[Answer(503)] * 5)
        plane.next("heartbeat", None, *[Answer(503)] * 12)
        start_agent()
        runtime.wait(lambda: len(runtime.running) == 4)
        runtime.let(0)
        runtime.wait(lambda: sorted(runtime.cut) == [1, 2, 3])
        plane.wait(lambda: plane.states()[1] == "released", 20)
        assert set(plane.stored) == {0}
        first_release = plane.calls.index(plane.called("release")[0])
        beats = [call for call in plane.calls[:first_release] if call.route == "heartbeat"]
        assert all(call.body["leases"] == [1] for call in beats[-5:])


def test_shards_of_a_runtime_that_died_go_to_another_worker(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    gone = Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, "no connection"), blame=Blame.RUNTIME)
    plane.give_batch(list(rows(4)))
    runtime.answers = dict.fromkeys(range(4), lambda: gone)
    agent = start_agent(runtime_down_seconds=0.5)
    runtime.wait(lambda: len(runtime.running) == 4)
    runtime.alive = False
    agent._probes.wake()
    plane.wait(
        lambda: any(c.body["runtimes"] and not c.body["runtimes"][0]["alive"] for c in plane.called("heartbeat"))
    )
    runtime.let_all()
    plane.wait(lambda: plane.states() == {1: "released"})
    assert plane.stored == {}
