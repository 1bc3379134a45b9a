"""A runtime's model is replaced while a batch runs: rows go where it still is, and fail only where it is nowhere."""

import threading
from collections.abc import Callable

import pytest
from openai import OpenAI

from app.domain.rows import Reply
from app.worker.agent import Agent
from tests.fakes.control_plane import FakeControlPlane, Hang, rows
from tests.fakes.steered_executor import SteeredExecutor
from tests.served import Served
from tests.worker.units import Parallel
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit

__all__ = ["sdk", "served", "start_worker"]
StartAgent = Callable[..., Agent]
GONE = Reply(status=404, body=b'{"error":{"message":"The model `fake` does not exist"}}')
GONE_AS_400 = Reply(status=400, body=b'{"error":{"message":"could not find real modelID for fake"}}')
"""In llama-swap's words."""


def replaced(runtime: Parallel, rows_known: int = 64, says: Reply = GONE) -> None:
    """From now on it serves another model, and says so to every row of the old one."""
    runtime.models = ("another",)
    runtime.answers |= dict.fromkeys(range(rows_known), lambda: says)


@pytest.mark.parametrize("says", [GONE, GONE_AS_400])
def test_what_was_not_answered_runs_on_a_worker_that_has_it(
    served: Served, sdk: OpenAI, start_worker: StartWorker, says: Reply
) -> None:
    first, second = Parallel(), SteeredExecutor()
    start_worker("gpu-1", first)
    batch = submit(sdk, served, 16)
    first.wait(lambda: len(first.running) == 4)
    first.let(0, 1)
    first.wait(lambda: len(first.started) == 6)
    replaced(first, says=says)
    first.let_all()
    second.let_all()
    start_worker("gpu-2", second)
    batch = ended(sdk, served, batch.id)
    assert batch.status == "completed"
    assert [line["custom_id"] for line in content(sdk, batch.output_file_id)] == [f"row-{n}" for n in range(16)]
    assert not content(sdk, batch.error_file_id)
    assert {0, 1}.isdisjoint(second.started), "what was finished is kept"


def test_a_404_of_a_model_that_is_still_there_is_the_rows_answer_the_second_time(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    runtime.answers[1] = lambda: GONE
    runtime.let_all()
    plane.give_batch(list(rows(4)))
    start_agent()
    plane.wait(lambda: len(plane.stored) == 4)
    assert b"does not exist" in plane.stored[1]
    assert runtime.started.count(1) == 2
    assert len(runtime.started) == 5


def test_nothing_is_claimed_until_the_control_plane_knows_that_it_is_gone(
    plane: FakeControlPlane, start_agent: StartAgent
) -> None:
    """Else it would grant the same shard again and again, and use its tries up in a moment."""
    runtime = Parallel()
    plane.give_batch(list(rows(4)))
    agent = start_agent([runtime])
    runtime.wait(lambda: len(runtime.running) == 4)
    replaced(runtime)
    heard = threading.Event()
    plane.next("heartbeat", *[Hang(heard)] * 3)
    agent._probes.wake()
    runtime.let_all()
    plane.wait(lambda: plane.called("report-failure"))
    assert plane.called("report-failure")[0].body["code"] == "model_not_found"
    claims = len(plane.called("claim"))
    plane.give_batch(list(rows(4)), batch_id="batch_2")
    agent.run_batch("batch_2")
    assert len(plane.called("claim")) == claims
    heard.set()
    plane.wait(lambda: len(plane.called("claim")) > claims)
