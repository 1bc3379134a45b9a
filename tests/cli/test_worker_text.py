"""A worker in words: its GPUs, its runtimes, and what they fetch."""

from typing import Any

import pytest

from app.cli.workers import gpu_text, pulled, runtime_fields, runtimes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "NVIDIA H200: 40.0 GiB of 141.0 GiB used, 70 % busy"),
        ({"utilization": None}, "NVIDIA H200: 40.0 GiB of 141.0 GiB used"),
        ({"memory_total": None, "memory_used": None}, "NVIDIA H200: 70 % busy"),
        (
            {"memory_total": None, "memory_used": None, "utilization": None, "error": "NVML: GPU is lost"},
            "NVIDIA H200: NVML: GPU is lost",
        ),
        ({"memory_total": None, "memory_used": None, "utilization": None}, "NVIDIA H200"),
    ],
)
def test_a_gpu_tells_what_it_knows(change: dict[str, Any], said: str) -> None:
    gpu = {"name": "NVIDIA H200", "memory_total": 141 * GIB, "memory_used": 40 * GIB, "utilization": 70.0}
    assert gpu_text({"error": None} | gpu | change) == said


def test_a_runtime_that_is_down_is_named_with_its_reason() -> None:
    up = {"name": "vllm@one", "alive": True, "reason": None}
    down = {"name": "vllm@two", "alive": False, "reason": "no connection"}
    assert runtimes({"runtimes": [up, up]}) == "2/2 up"
    failing = up | {"reason": "rows fail, one at a time is tried: it answered 503"}
    assert runtimes({"runtimes": [up, down]}) == "1/2 up, vllm@two: no connection"
    assert runtimes({"runtimes": [failing, down]}) == "1/2 up, vllm@two: no connection"
    assert runtimes({"runtimes": [up, failing]}) == f"2/2 up, vllm@one: {failing['reason']}"
    assert runtimes({"runtimes": []}) == "0/0 up"
    assert runtime_fields(failing | {"models": []})["runtime"] == f"vllm@one: alive: {failing['reason']}"
    assert runtime_fields(down | {"models": [], "reason": None})["runtime"] == "vllm@two: not alive: no answer"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "m is being fetched, 1.0 GiB of 2.0 GiB (ollama@here)"),
        ({"total": 0, "completed": 0}, "m is being fetched, 0 B (ollama@here)"),
        ({"status": "pulled"}, "m was fetched, 2.0 GiB (ollama@here)"),
        ({"status": "failed", "error": "no such model"}, "m could not be fetched: no such model (ollama@here)"),
        ({"status": "cancelled"}, "m is not needed any more, stopped at 1.0 GiB of 2.0 GiB (ollama@here)"),
    ],
)
def test_a_pull_says_how_it_stands(change: dict[str, Any], said: str) -> None:
    pull = {"model": "m", "runtime": "ollama@here", "status": "pulling", "completed": GIB, "total": 2 * GIB}
    assert pulled({"error": ""} | pull | change) == said
