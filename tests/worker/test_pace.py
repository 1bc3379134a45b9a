"""A worker hands in as seldom as the control plane asks it to (PROTOCOL 5)."""

from collections.abc import Callable

from app.worker.agent import Agent
from tests.fakes.control_plane import Answer, FakeControlPlane, rows
from tests.fakes.steered_executor import SteeredExecutor


def test_hand_ins_come_as_seldom_as_the_control_plane_asks(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: Callable[..., Agent]
) -> None:
    plane.give_batch(list(rows(4)))
    plane.next("results", Answer(200, {"parts": {"1": "stored"}, "next_segment_seconds": 30.0}))
    start_agent()
    runtime.let(0)
    plane.wait(lambda: plane.called("results"))
    runtime.let(1)
    plane.never(lambda: len(plane.called("results")) > 1)
