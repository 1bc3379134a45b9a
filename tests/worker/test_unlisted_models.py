"""Servers that answer with whatever model they have get no row of a model that they do not list."""

import time
from collections.abc import Callable

import pytest

from app.domain.rows import RowErrorCode
from app.worker.row_queue import RowQueue
from app.worker.runtimes import Runtimes
from executors.cancellation import CancelToken
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.fakes.runtime_process import RuntimeProcess, runtime_server
from tests.worker.units import unit

__all__ = ["runtime_server"]


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
