"""A worker hands in as seldom as the control plane asks it to (PROTOCOL 5)."""

from collections.abc import Callable

from app.worker.agent import Agent
from tests.e2e.yard import until
from tests.fakes.control_plane import FakeControlPlane, rows
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


def test_it_hands_in_less_often_when_the_control_plane_asks_for_it(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.next_segment_seconds = 30.0
    plane.give_batch(list(rows(4)))
    agent = start_agent()
    runtime.wait(lambda: len(runtime.running) == 4)
    settler = agent._shares.all()[0]._settler
    # The end of claiming hands in what is finished: a claim that is answered late would do so in the middle of this.
    until(lambda: settler._closing, "the worker knows that no shard will follow")
    runtime.let(0)
    plane.wait(lambda: set(plane.stored) == {0})
    until(lambda: settler.period == 30.0, "the worker has read the answer that slows it down")
    runtime.let(1, 2)
    plane.never(lambda: len(plane.called("results")) > 1, after=lambda: settler.shards()[0].pending_counts() == (2, 2))
    agent.on_signal()  # the end of a shard, or of the worker, waits for no clock
    runtime.let(3)
    plane.wait(lambda: set(plane.stored) == {0, 1, 2, 3})
