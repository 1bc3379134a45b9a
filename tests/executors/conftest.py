"""A mock of a runtime as a real process, and the executor in front of it."""

from collections.abc import Callable, Iterator

import pytest

from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.fakes.runtime_process import RuntimeProcess, runtime_server

__all__ = ["runtime_server"]


@pytest.fixture
def mock(runtime_server: Callable[..., RuntimeProcess]) -> RuntimeProcess:
    """A mock vLLM without latency."""
    return runtime_server()


@pytest.fixture
def vllm(mock: RuntimeProcess) -> Iterator[VLLMExecutor]:
    """The executor in front of `mock`."""
    executor = VLLMExecutor(ExecutorSettings(), mock.url)
    yield executor
    executor.close()
