"""A worker beside an Ollama that lacks the batch's model, against the real API (and a fake of Ollama's server)."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from openai import OpenAI

from executors.runtimes.ollama import OllamaExecutor
from executors.settings import ExecutorSettings
from tests.e2e.yard import until
from tests.fakes.ollama_process import ollama_server
from tests.fakes.runtime_process import RuntimeProcess
from tests.served import Served
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit

__all__ = ["ollama_server", "sdk", "served", "start_worker"]


@pytest.fixture
def ollama(ollama_server: Callable[..., RuntimeProcess]) -> Iterator[tuple[OllamaExecutor, RuntimeProcess]]:
    server = ollama_server("--models", "other:latest")
    executor = OllamaExecutor(ExecutorSettings(pull_models=True), server.url)
    yield executor, server
    executor.close()


@pytest.mark.parametrize("model", ["good", "good:latest", "backwards", "errors", "eof"])
def test_the_model_is_fetched_whatever_goes_wrong_on_the_way(
    served: Served, sdk: OpenAI, start_worker: StartWorker, ollama: tuple[OllamaExecutor, RuntimeProcess], model: str
) -> None:
    executor, _ = ollama
    start_worker("gpu-1", executor, pull_models=True)
    batch = ended(sdk, served, submit(sdk, served, 10, model).id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 10
    with served.http() as http:
        (pull,) = http.get("/v1/workers/gpu-1").json()["pulls"]
    assert (pull["model"], pull["status"], pull["completed"], pull["total"]) == (model, "pulled", 1200, 1200)


def test_what_ollama_says_of_a_model_that_nobody_has_is_why_the_rows_failed(
    served: Served, sdk: OpenAI, start_worker: StartWorker, ollama: tuple[OllamaExecutor, RuntimeProcess]
) -> None:
    executor, _ = ollama
    start_worker("gpu-1", executor, pull_models=True)
    batch = ended(sdk, served, submit(sdk, served, 10, "absent").id)
    errors = [line["error"] for line in content(sdk, batch.error_file_id)]
    assert len(errors) == 10
    assert {error["code"] for error in errors} == {"model_not_found"}
    assert all("pull model manifest: file does not exist" in error["message"] for error in errors)


def test_a_model_under_its_other_name_is_no_reason_to_fetch(
    served: Served, sdk: OpenAI, start_worker: StartWorker, ollama: tuple[OllamaExecutor, RuntimeProcess]
) -> None:
    executor, server = ollama
    start_worker("gpu-1", executor, pull_models=True)
    assert ended(sdk, served, submit(sdk, served, 4, "other").id).status == "completed"
    assert server.stats()["pulls"] == {}


def test_a_model_that_fits_no_disk_is_not_pulled_and_the_reason_has_the_numbers(
    served: Served, sdk: OpenAI, start_worker: StartWorker, ollama: tuple[OllamaExecutor, RuntimeProcess]
) -> None:
    executor, server = ollama
    start_worker("gpu-1", executor, pull_models=True)
    batch = ended(sdk, served, submit(sdk, served, 10, "huge").id)
    errors = [line["error"] for line in content(sdk, batch.error_file_id)]
    assert [error["code"] for error in errors] == ["model_not_found"] * 10
    reason = errors[0]["message"]
    assert re.search(r"1,000,000\.0 GB of it are missing and /\S+ has [\d,.]+ GB free", reason), reason
    with served.http() as http:
        (pull,) = http.get("/v1/workers/gpu-1").json()["pulls"]
    assert (pull["status"], pull["completed"]) == ("failed", 0)
    assert server.stats()["pulls"]["huge"] == 1


@pytest.mark.parametrize(("vram_gb", "fits"), [(0.0, False), (1.0, True)])
def test_vram_gb_stands_for_the_memory_of_the_gpus(
    served: Served,
    sdk: OpenAI,
    start_worker: StartWorker,
    ollama: tuple[OllamaExecutor, RuntimeProcess],
    monkeypatch: pytest.MonkeyPatch,
    vram_gb: float,
    fits: bool,
) -> None:
    executor, _ = ollama
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(total=32 * 10**6))
    start_worker("gpu-1", executor, pull_models=True, vram_gb=vram_gb)
    batch = submit(sdk, served, 4, "large")

    def pull() -> dict[str, Any]:
        with served.http() as http:
            found: list[dict[str, Any]] = http.get("/v1/workers/gpu-1").json()["pulls"]
        return found[0] if found else {}

    if fits:
        until(lambda: pull().get("total") == 64 * 10**6, "it is pulled")
        assert pull()["status"] == "pulling"
        return
    batch = ended(sdk, served, batch.id)
    reason = content(sdk, batch.error_file_id)[0]["error"]["message"]
    assert "it has 0.1 GB, and the worker has 0.0 GB of GPU memory and 0.0 GB of host memory" in reason
