"""A cautious shard on its worker: one row at a time, each named and answered for before it starts (PROTOCOL 5)."""

import json
import threading
from collections.abc import Callable

import pytest

from app.worker.agent import Agent
from tests.fakes.control_plane import Answer, FakeControlPlane, Hang, Lose, refusal, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


def named(plane: FakeControlPlane) -> list[int]:
    return [call.body["row"] for call in plane.called("start-row")]


def ended(plane: FakeControlPlane, leases: int = 1) -> bool:
    return [*plane.states().values()] == ["reported"] * leases


def test_each_row_is_named_before_it_starts_and_stored_before_the_next_is_named(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.segment_seconds = 30.0  # nothing is handed in for its time
    plane.give_batch(list(rows(5)), shard_rows=5, row_by_row=True)
    runtime.let_all()
    start_agent()
    plane.wait(lambda: ended(plane))
    said = [call for call in plane.calls if call.route in {"start-row", "results"}]
    assert [call.route for call in said] == ["start-row", "results"] * 5
    assert [part["rows"] for call in said[1::2] for part in call.body["parts"]] == ["0", "1", "2", "3", "4"]
    assert named(plane) == runtime.started == [0, 1, 2, 3, 4]
    assert runtime.most_at_once == 1


def test_a_row_waits_for_the_answer_to_its_name(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    answer = threading.Event()
    plane.give_batch(list(rows(2)), row_by_row=True)
    plane.next("start-row", Hang(answer))
    runtime.let_all()
    start_agent()
    plane.wait(lambda: named(plane) == [0] and len(plane.called("heartbeat")) >= 3)
    assert runtime.started == []
    answer.set()
    plane.wait(lambda: ended(plane))


@pytest.mark.parametrize("route", ["start-row", "results"])
@pytest.mark.parametrize("trouble", [Lose(), Answer(503)])
def test_a_lost_answer_runs_no_row_twice(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, route: str, trouble: object
) -> None:
    plane.give_batch(list(rows(3)), row_by_row=True)
    plane.next(route, trouble, trouble)
    runtime.let_all()
    start_agent()
    plane.wait(lambda: ended(plane))
    assert runtime.started == [0, 1, 2]


def test_the_next_row_waits_until_the_control_plane_has_the_last_one(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    answer = threading.Event()
    plane.give_batch(list(rows(2)), row_by_row=True)
    plane.next("results", Hang(answer))
    runtime.let_all()
    start_agent()
    plane.wait(lambda: plane.called("results") and len(plane.called("heartbeat")) >= 3)
    assert named(plane) == [0]
    answer.set()
    plane.wait(lambda: ended(plane))


def test_a_row_of_a_lease_that_is_told_to_stop_does_not_start(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(3)), row_by_row=True)
    plane.timing |= {"renew_seconds": 4.0}  # no beat says so before the name is answered
    start_agent()
    runtime.wait(lambda: runtime.running == {0})
    plane.leases[1].state = "stopping"
    plane.next("results", Answer(200, {"parts": {"1": "stored"}}))
    runtime.let_all()
    plane.wait(lambda: plane.states() == {1: "released"})
    assert named(plane) == [0, 1]
    assert runtime.started == [0]


def test_a_row_of_a_lease_that_is_others_does_not_start(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(3)), row_by_row=True)
    plane.timing |= {"renew_seconds": 4.0}
    plane.next("start-row", Answer(200, {"verdict": "stale"}))
    start_agent()
    plane.wait(lambda: named(plane) == [0])
    plane.wait(lambda: len(plane.called("claim")) > 1)  # the share goes on without the shard
    assert runtime.started == []
    assert plane.called("release") == []


def test_a_name_that_is_refused_is_a_failure_of_the_shard(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(3)), row_by_row=True)
    plane.next("start-row", refusal(400, "invalid_row", "no such row"))
    start_agent()
    plane.wait(lambda: plane.states() == {1: "failed"})
    assert "row 0 may not start: no such row" in plane.called("report-failure")[0].body["error"]
    assert runtime.started == []


def test_a_drain_hands_in_the_row_that_runs_and_gives_the_rest_back(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(3)), row_by_row=True)
    agent = start_agent()
    runtime.wait(lambda: runtime.running == {0})
    agent.on_signal()
    runtime.let_all()
    assert agent.join(20)
    assert (sorted(plane.stored), plane.states(), named(plane)) == ([0], {1: "released"}, [0])


def test_a_row_that_ended_its_worker_is_answered_without_being_named_or_run(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(3)), row_by_row=True)
    plane.shards[0]["rejected"] = [{"row": 1, "code": "worker_lost", "message": "worker one was lost"}]
    runtime.let_all()
    start_agent()
    plane.wait(lambda: ended(plane))
    assert named(plane) == runtime.started == [0, 2]
    assert json.loads(plane.stored[1])["error"] == {"code": "worker_lost", "message": "worker one was lost"}


def test_a_shard_whose_rows_are_all_answered_ends(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(1)), row_by_row=True)
    plane.shards[0]["rejected"] = [{"row": 0, "code": "worker_lost", "message": "worker one was lost"}]
    start_agent()
    plane.wait(lambda: ended(plane))
    assert runtime.started == []


def test_other_shards_follow_it(plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent) -> None:
    plane.give_batch(list(rows(12)), row_by_row=True)
    plane.shards[1]["row_by_row"] = False
    runtime.let_all()
    start_agent()
    plane.wait(lambda: ended(plane, 3))
    assert sorted(runtime.started) == list(range(12))
    assert named(plane) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_a_worker_says_that_it_can(plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent) -> None:
    start_agent()
    assert plane.called("register")[0].body["row_by_row"] is True
    assert runtime.started == []


class TestAnOrdinaryShard:
    """A row that ends its worker at once must count, whatever the last heartbeat said."""

    def test_that_a_beat_called_unstarted_says_a_word_before_its_first_row(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        word = threading.Event()
        plane.next("start-row", Hang(word))
        called_unstarted(plane, start_agent)
        plane.wait(lambda: plane.called("start-row"))
        plane.wait(lambda: len(plane.called("heartbeat")) >= 4)
        assert runtime.started == []
        word.set()
        runtime.let_all()
        plane.wait(lambda: ended(plane))
        assert len(named(plane)) == 1
        assert sorted(runtime.started) == [0, 1, 2, 3]

    def test_that_is_others_by_then_starts_no_row(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.timing |= {"renew_seconds": 4.0}
        plane.next("start-row", *[Answer(200, {"verdict": "stale"})] * 1000)
        called_unstarted(plane, start_agent)
        plane.wait(lambda: len(plane.called("claim")) > 1)
        assert runtime.started == []

    @pytest.mark.parametrize("trouble", [Answer(503), refusal(404, "not_found")])
    def test_that_nobody_answers_starts_all_the_same(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, trouble: Answer
    ) -> None:
        plane.next("start-row", *[trouble] * 1000)
        runtime.let_all()
        called_unstarted(plane, start_agent)
        plane.wait(lambda: ended(plane))
        assert sorted(runtime.started) == [0, 1, 2, 3]

    def test_that_no_beat_called_unstarted_says_none(
        self, plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
    ) -> None:
        plane.timing |= {"renew_seconds": 4.0}
        plane.give_batch(list(rows(8)))
        runtime.let_all()
        start_agent()
        plane.wait(lambda: ended(plane, 2))
        assert named(plane) == []


def called_unstarted(plane: FakeControlPlane, start_agent: StartAgent) -> None:
    """Have a worker hold a shard whose rows do not come, until a beat has called it unstarted."""
    rows_come = threading.Event()
    plane.next("content", Hang(rows_come))
    plane.give_batch(list(rows(4)))
    agent = start_agent()
    plane.wait(lambda: plane.called("content"))
    agent.beat_now("batch_1")
    plane.wait(lambda: any(call.body["unstarted"] for call in plane.called("heartbeat")))
    rows_come.set()
