"""Servers that answer with whatever model they have get no row of a model that they do not list."""

import time
from collections.abc import Callable

import pytest
from openai import OpenAI

from app.domain.rows import RowErrorCode
from app.worker.row_queue import RowQueue
from app.worker.runtimes import Runtimes
from executors.cancellation import CancelToken
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.fakes.runtime_process import RuntimeProcess, runtime_server
from tests.served import Served
from tests.worker.units import unit
from tests.working import StartWorker, ended, sdk, served, start_worker, submit

__all__ = ["runtime_server", "sdk", "served", "start_worker"]


@pytest.mark.parametrize("server", ["llama-server", "llama-cpp-python"])
def test_a_row_of_another_model_is_never_sent(runtime_server: Callable[..., RuntimeProcess], server: str) -> None:
    runtime = runtime_server("--like", server, "--models", "mine")
    runtimes = Runtimes([VLLMExecutor(ExecutorSettings(), runtime.url)], time.monotonic)
    runtimes.probe()
    queue = RowQueue(runtimes)
    queue.put([unit(0, model="another")])
    taken = queue.take()
    assert taken is not None
    reply = runtimes.execute(taken, timeout=5, cancelled=CancelToken())
    runtimes.close()
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.MODEL_NOT_FOUND
    assert runtime.stats()["requests"] == 0


def test_a_batch_whose_model_has_just_appeared_runs_and_one_whose_model_never_did_fails(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime_server: Callable[..., RuntimeProcess]
) -> None:
    """Nothing else has the worker list the models of a healthy runtime for a minute."""
    runtime = runtime_server("--like", "vllm", "--models", "old")
    executor = VLLMExecutor(ExecutorSettings(), runtime.url)
    start_worker("one", executor)
    assert ended(sdk, served, submit(sdk, served, 2, "old").id).status == "completed"
    runtime.post("/become/new")
    began = time.monotonic()
    assert ended(sdk, served, submit(sdk, served, 2, "new").id).status == "completed"
    failed = ended(sdk, served, submit(sdk, served, 2, "newest").id)
    assert failed.status == "failed"
    assert failed.errors is not None
    assert {error.code for error in failed.errors.data or []} == {"model_not_found"}
    assert time.monotonic() - began < 20
    executor.close()


def test_a_runtime_that_loads_its_model_is_told_as_that(runtime_server: Callable[..., RuntimeProcess]) -> None:
    runtime = runtime_server("--like", "llama-server", "--state", "loading")
    runtimes = Runtimes([VLLMExecutor(ExecutorSettings(), runtime.url)], time.monotonic)
    assert not runtimes.any_alive
    runtimes.probe()
    (info,) = runtimes.infos()
    assert not info.alive
    assert "loading its model" in (info.reason or "")
    runtime.post("/finish-loading")
    assert runtimes.probe()
    assert runtimes.any_alive
    runtimes.close()
