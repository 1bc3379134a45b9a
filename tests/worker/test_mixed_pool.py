"""A pool whose workers do not take the same parameters, through the SDK and the wire (R-23)."""

from collections.abc import Callable, Iterator

import pytest
from openai import OpenAI

from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.fakes.ollama_process import ollama_server
from tests.fakes.runtime_process import RuntimeProcess, runtime_server
from tests.served import Served, rows
from tests.worker.refusing import Refusing
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit_content

__all__ = ["ollama_server", "runtime_server", "sdk", "served", "start_worker"]

Server = Callable[..., RuntimeProcess]


def biased(count: int, model: str = "fake") -> bytes:
    """Rows that ask for a parameter which not every runtime takes."""
    return rows(count, model).replace(b'"body": {', b'"body": {"logit_bias": {"1": 2}, ')


def test_in_a_mixed_pool_rows_run_only_where_their_parameters_are_taken(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    picky, taking = Refusing("logit_bias"), Refusing("n")
    start_worker("picky", picky)
    start_worker("taking", taking)
    batch = ended(sdk, served, submit_content(sdk, served, biased(24)).id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed) == ("completed", 24)
    assert (len(picky.started), sorted(taking.started)) == (0, list(range(24)))


def test_what_is_dropped_is_told_in_each_row_and_the_sdk_reads_on(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    picky = Refusing("logit_bias")
    start_worker("picky", picky)
    failed = ended(sdk, served, submit_content(sdk, served, biased(2)).id)
    assert (failed.status, failed.errors and failed.errors.data and failed.errors.data[0].code) == (
        "failed",
        "unsupported_parameter",
    )
    mixed = biased(2) + rows(3, "fake").splitlines(keepends=True)[2]
    batch = ended(sdk, served, submit_content(sdk, served, mixed, unsupported_parameters="drop").id)
    lines = content(sdk, batch.output_file_id)
    assert [line["response"].get("gpuyard") for line in lines] == [
        {"dropped_parameters": ["logit_bias"]},
        {"dropped_parameters": ["logit_bias"]},
        None,
    ]
    assert all(b"logit_bias" not in body and b'"messages"' in body for body in picky.bodies)


@pytest.fixture
def both(ollama_server: Server, runtime_server: Server, start_worker: StartWorker) -> Iterator[list[RuntimeProcess]]:
    """A worker beside an Ollama and one beside a vLLM, which serve the same model."""
    servers = [ollama_server("--models", "mock:latest"), runtime_server("--models", "mock")]
    settings = ExecutorSettings()
    executors = [OllamaExecutor(settings, servers[0].url), VLLMExecutor(settings, servers[1].url)]
    for name, executor in zip(("ollama", "vllm"), executors, strict=True):
        start_worker(name, executor)
    yield servers
    for executor in executors:
        executor.close()


def test_beside_an_ollama_and_a_vllm_a_batch_with_logit_bias_runs_on_the_vllm_alone(
    served: Served, sdk: OpenAI, both: list[RuntimeProcess]
) -> None:
    batch = ended(sdk, served, submit_content(sdk, served, biased(20, "mock")).id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed) == ("completed", 20)
    ollama, vllm = (server.stats() for server in both)
    assert (ollama["requests"], vllm["requests"]) == ({}, 20)
    assert "logit_bias" in vllm["body"]


def test_with_drop_it_runs_on_both_and_the_rows_of_the_ollama_say_what_they_lost(
    served: Served, sdk: OpenAI, both: list[RuntimeProcess]
) -> None:
    batch = ended(sdk, served, submit_content(sdk, served, biased(40, "mock"), unsupported_parameters="drop").id)
    lines = content(sdk, batch.output_file_id)
    assert len(lines) == 40
    lessened = [line for line in lines if "gpuyard" in line["response"]]
    assert all(line["response"]["gpuyard"] == {"dropped_parameters": ["logit_bias"]} for line in lessened)
    assert both[1].stats()["requests"] == 40 - len(lessened)


def test_a_row_that_would_pass_others_in_the_runtimes_queue_does_not_and_says_so(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    engine = Refusing("n")
    start_worker("engine", engine)
    first = rows(1, "fake").replace(b'"body": {', b'"body": {"priority": -9, ')
    mixed = first + rows(3, "fake").split(b"\n", 1)[1]
    batch = ended(sdk, served, submit_content(sdk, served, mixed).id)
    lines = content(sdk, batch.output_file_id)
    assert [line["response"].get("gpuyard") for line in lines] == [{"dropped_parameters": ["priority"]}, None, None]
    assert len(engine.bodies) == 3
    assert all(b"priority" not in body and b'"messages"' in body for body in engine.bodies)
