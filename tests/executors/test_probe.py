"""A probe says what can be run here, and is never fooled into calling a busy runtime dead."""

import os
import signal
import time
from collections.abc import Callable

from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess


def test_a_model_of_ollama_is_known_with_and_without_latest(ollama_server: Callable[..., RuntimeProcess]) -> None:
    executor = OllamaExecutor(ExecutorSettings(), ollama_server("--models", "a,b:7b").url)
    facts = executor.probe()
    assert [model.names for model in facts.models] == [("a:latest", "a"), ("b:7b",)]
    assert facts.version == "0.40.12"
    assert run(executor, chat_row(model="a")).ok
    assert run(executor, chat_row(model="a:latest")).ok
    assert run(executor, chat_row(model="b")).status == 404
    executor.close()


def test_a_runtime_tells_what_it_has_in_memory(
    ollama_server: Callable[..., RuntimeProcess], vllm: VLLMExecutor
) -> None:
    """A-02. That it changes is no reason to tell of the runtime anew, which stops claims until that is heard."""
    executor = OllamaExecutor(ExecutorSettings(), ollama_server("--models", "a,b:7b").url)
    before = executor.probe()
    assert before.loaded == ()
    assert run(executor, chat_row(model="a")).ok
    assert executor.probe().loaded == ("a:latest",)
    assert executor.probe() == before
    executor.close()
    facts = vllm.probe()
    assert facts.loaded == tuple(model.id for model in facts.models)


def test_a_vllm_tells_its_version_and_endpoints(vllm: VLLMExecutor) -> None:
    for _ in range(2):
        facts = vllm.probe()
        assert facts.version == "0.32.0"
        assert "/v1/responses" in facts.endpoints


def test_a_vllm_that_still_writes_its_page_is_not_yet_there(runtime_server: Callable[..., RuntimeProcess]) -> None:
    """The first time it is asked for its routes, a busy vLLM takes seconds, and only they tell that it cannot chat."""
    executor = VLLMExecutor(ExecutorSettings(probe_seconds=0.3), runtime_server("--late-pages", 2).url)
    seen = [executor.probe().alive for _ in range(3)]
    assert seen == [False, False, True]
    executor.close()


def test_a_server_that_never_tells_its_routes_is_taken_to_have_all(
    runtime_server: Callable[..., RuntimeProcess],
) -> None:
    executor = VLLMExecutor(ExecutorSettings(probe_seconds=0.1), runtime_server("--late-pages", 1000).url)
    end = time.monotonic() + 20
    while not (facts := executor.probe()).alive:
        assert time.monotonic() < end
    assert "/v1/embeddings" in facts.endpoints
    executor.close()


def test_a_wrong_key_is_named(runtime_server: Callable[..., RuntimeProcess]) -> None:
    runtime = runtime_server("--api-key", "right")
    executor = VLLMExecutor(ExecutorSettings(api_key="wrong"), runtime.url)
    assert "GPUYARD_RUNTIME_API_KEY" in executor.probe().reason
    executor.close()


def test_a_runtime_that_hangs_is_dead_within_the_bound(runtime_server: Callable[..., RuntimeProcess]) -> None:
    runtime = runtime_server()
    executor = VLLMExecutor(ExecutorSettings(probe_seconds=0.3), runtime.url)
    models = executor.probe().models
    os.kill(runtime.process.pid, signal.SIGSTOP)
    start = time.monotonic()
    facts = executor.probe()
    assert time.monotonic() - start < 10
    assert (facts.alive, facts.reason, facts.models) == (False, "the answer was not complete in time", models)
    executor.close()


def test_a_runtime_too_busy_to_answer_a_probe_keeps_its_last_facts(
    runtime_server: Callable[..., RuntimeProcess],
) -> None:
    runtime = runtime_server()
    executor = VLLMExecutor(ExecutorSettings(probe_seconds=0.3), runtime.url)
    before = executor.probe()
    assert run(executor, chat_row()).ok
    os.kill(runtime.process.pid, signal.SIGSTOP)
    assert executor.probe() == before
    os.kill(runtime.process.pid, signal.SIGCONT)
    executor.close()
