"""How a share comes by the input of its shards: with the claim, by as few calls as there are gaps, or not at all."""

from collections.abc import Callable

from app.worker.agent import Agent
from tests.fakes.control_plane import Answer, FakeControlPlane, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


def finish(plane: FakeControlPlane) -> None:
    plane.wait(lambda: len(plane.stored) == plane.rows and set(plane.states().values()) == {"reported"})


def test_an_input_that_is_not_there_is_a_failure_of_its_shard(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(4)))
    plane.next("content", Answer(404))
    start_agent()
    plane.wait(lambda: plane.states() == {1: "failed"})
    assert "input cannot be read" in plane.called("report-failure")[0].body["error"]
    assert runtime.started == []


def test_an_input_of_another_length_is_a_failure_of_its_shard(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(4)))
    plane.shards[0]["rows"] = 5
    start_agent()
    plane.wait(lambda: plane.states() == {1: "failed"})
    assert "holds 4 rows, not 5" in plane.called("report-failure")[0].body["error"]


def test_shards_that_lie_side_by_side_are_fetched_by_one_call(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(12)))
    runtime.let_all()
    start_agent(max_concurrent_prompts=12)
    finish(plane)
    assert len(plane.leases) == 3
    (call,) = plane.called("content")
    assert call.headers["range"] == f"bytes=0-{len(plane.input) - 1}"


def test_shards_that_bring_their_rows_are_not_fetched(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(rows(12)))
    for shard in list(plane.shards)[:2]:
        shard["content"] = plane.input[shard["start"] : shard["end"]].decode()
    third = plane.shards[2]
    runtime.let_all()
    start_agent(max_concurrent_prompts=12)
    finish(plane)
    (call,) = plane.called("content")
    assert call.headers["range"] == f"bytes={third['start']}-{third['end'] - 1}"
