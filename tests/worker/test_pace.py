"""A worker hands in as seldom as the control plane asks it to (PROTOCOL 5)."""

from collections.abc import Callable

from app.worker.agent import Agent
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
    runtime.let(0)
    plane.wait(lambda: set(plane.stored) == {0})
    runtime.let(1, 2)
    runtime.wait(lambda: len(runtime.finished) == 3)
    plane.never(lambda: len(plane.called("results")) > 1)
    agent.on_signal()  # the end of a shard, or of the worker, waits for no clock
    runtime.let(3)
    plane.wait(lambda: set(plane.stored) == {0, 1, 2, 3})
