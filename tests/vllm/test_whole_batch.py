"""A batch from upload to files over a real vLLM, and how fast that is beside a client that only sends."""

import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest

from executors.runtimes.vllm import VLLMExecutor
from tests.e2e.yard import Yard
from tests.executors.running import chat_row, run
from tests.vllm.batches import TOKENS, assert_all_answered, batch_of, pool_with_worker
from tests.vllm.engine import MODEL, VllmServer

IN_FLIGHT = 64
ROWS = 600
ROUNDS = 3
figures = logging.getLogger("figures")


@pytest.fixture(scope="module")
def yard(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Everything that `gpuyard up` starts, on SQLite; workers come with the tests."""
    with Yard(tmp_path_factory.mktemp("yard")) as made:
        made.start()
        yield made


def test_each_row_of_a_batch_is_answered_once_by_the_real_engine(yard: Yard, server: VllmServer) -> None:
    pool = pool_with_worker(yard, server, "auto", max_concurrent_prompts="auto")
    batch = batch_of(yard, pool, 600)
    batch.ended(seconds=120)
    assert_all_answered(batch, 600)


def test_a_cancelled_batch_leaves_the_engine_idle(yard: Yard, server: VllmServer) -> None:
    pool = pool_with_worker(yard, server, "cancelled", max_concurrent_prompts=8)
    batch = batch_of(yard, pool, 200, tokens=1900)
    server.wait_for_load(running=8, seconds=60)
    batch.cancel()
    figures.info("a cancel reached the engine after %.1f s", server.wait_for_load(running=0, seconds=10))
    batch.ended("cancelled")


def test_figures_side_by_side(
    yard: Yard, server: VllmServer, executor: VLLMExecutor, vllm_model: tuple[object, object]
) -> None:
    pool = pool_with_worker(yard, server, "figures", max_concurrent_prompts=IN_FLIGHT)
    ways: dict[str, Callable[[], float]] = {
        "aiohttp, nothing else": lambda: by_bare_client(server),
        "our executor under threads": lambda: by_executor(executor),
        "a whole batch": lambda: by_batch(yard, pool),
    }
    for way in ways.values():
        way()  # what is slow only once
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            rates[name].append(way())
    for name, found in rates.items():
        figures.info("%-28s %6.0f rows/s (of %s)", name, median(found), ", ".join(f"{rate:.0f}" for rate in found))
    bare, alone, whole = (median(found) for found in rates.values())
    assert alone > 0.7 * bare
    assert whole > 0.5 * bare


def by_bare_client(server: VllmServer) -> float:
    script = server.bare_client(MODEL, ROWS, IN_FLIGHT, TOKENS)
    return float(subprocess.run(script, check=True, capture_output=True, text=True, timeout=120).stdout)


def by_executor(executor: VLLMExecutor) -> float:
    rows = [chat_row(model=MODEL, max_tokens=TOKENS, ignore_eos=True) for _ in range(ROWS)]
    start = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        replies = list(threads.map(lambda row: run(executor, row, timeout=100), rows))
    took = time.perf_counter() - start
    assert all(reply.ok for reply in replies)
    return ROWS / took


def by_batch(yard: Yard, pool: str) -> float:
    """From the batch's creation to its last row stored; upload and the making of its files are not the engine's."""
    start = time.perf_counter()
    batch = batch_of(yard, pool, ROWS)
    batch.stored(ROWS, seconds=120)
    took = time.perf_counter() - start
    batch.ended()
    return ROWS / took
