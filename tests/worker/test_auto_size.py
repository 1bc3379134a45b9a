"""A worker whose number in flight is `auto`, in front of a real server of so many slots (R-17)."""

from collections.abc import Callable

import pytest

from app.worker.agent import Agent
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.fakes.control_plane import FakeControlPlane, rows
from tests.fakes.runtime_process import RuntimeProcess, runtime_server

__all__ = ["runtime_server"]
StartAgent = Callable[..., Agent]
SLOTS = 32
ROWS = 3000


@pytest.fixture
def engine(runtime_server: Callable[..., RuntimeProcess]) -> Callable[..., tuple[RuntimeProcess, VLLMExecutor]]:
    """Start a mock of 32 slots and 100 ms, and an executor in front of it, which the agent closes."""

    def start(*options: object) -> tuple[RuntimeProcess, VLLMExecutor]:
        runtime = runtime_server("--models", "fake", "--slots", SLOTS, "--latency-ms", 100, *options)
        return runtime, VLLMExecutor(ExecutorSettings(), runtime.url)

    return start


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--gauges",)], ids=["by the rate", "with gauges"])
def test_it_fills_the_engine_and_does_not_flood_it(
    plane: FakeControlPlane,
    start_agent: StartAgent,
    engine: Callable[..., tuple[RuntimeProcess, VLLMExecutor]],
    options: tuple[str, ...],
) -> None:
    runtime, executor = engine(*options)
    plane.give_batch(list(rows(ROWS)), shard_rows=256)
    start_agent([executor], max_concurrent_prompts="auto")
    runtime.wait_for(lambda stats: stats["completed"] > ROWS / 2, seconds=60)
    runtime.reset()
    runtime.wait_for(lambda stats: stats["completed"] > ROWS / 4, seconds=60)
    # How long the queue is to the row, test_sizing shows: here a busy machine makes every rate a rough one.
    assert 0.9 * SLOTS <= runtime.stats()["max_in_flight"] <= 3 * SLOTS
    plane.wait(lambda: len(plane.stored) == ROWS, seconds=60)


@pytest.mark.slow
def test_an_engine_that_refuses_is_obeyed_and_no_row_is_lost(
    plane: FakeControlPlane,
    start_agent: StartAgent,
    engine: Callable[..., tuple[RuntimeProcess, VLLMExecutor]],
) -> None:
    runtime, executor = engine("--max-queued", 4)
    plane.give_batch(list(rows(ROWS)), shard_rows=256)
    start_agent([executor], max_concurrent_prompts="auto")
    plane.wait(lambda: len(plane.stored) == ROWS, seconds=90)
    stats = runtime.stats()
    assert stats["completed"] == ROWS
    assert stats["refused"] < 0.2 * ROWS
