"""A real vLLM that hangs, and one that is ended with work in flight."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from app.domain.rows import Blame, RowErrorCode
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row, run
from tests.vllm.engine import MODEL, VllmServer, executor_for

ROWS = 16


@pytest.fixture(scope="module")
def mortal(start_vllm: Callable[..., VllmServer]) -> Iterator[VllmServer]:
    server = start_vllm()
    yield server
    server.close()


@pytest.fixture
def before_it(mortal: VllmServer) -> Iterator[VLLMExecutor]:
    yield from executor_for(mortal)


def test_a_hanging_engine_is_healthy_by_its_own_word_and_costs_each_row_its_time(
    mortal: VllmServer, before_it: VLLMExecutor
) -> None:
    core = mortal.engine_core()
    core.suspend()
    try:
        start = time.monotonic()
        reply = run(before_it, chat_row(model=MODEL, max_tokens=4), timeout=3)
        took = time.monotonic() - start
        assert mortal.is_healthy()
        assert before_it.probe().alive
    finally:
        core.resume()
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.REQUEST_TIMEOUT
    assert took < 5
    assert run(before_it, chat_row(model=MODEL, max_tokens=4), timeout=30).ok


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_rows_in_flight_when_it_ends_are_done_by_the_next_one(
    mortal: VllmServer, before_it: VLLMExecutor, number: signal.Signals
) -> None:
    rows = [chat_row(model=MODEL, max_tokens=1000, ignore_eos=True) for _ in range(ROWS)]
    with ThreadPoolExecutor(ROWS) as pool:
        running = [pool.submit(run, before_it, row, timeout=300) for row in rows]
        mortal.wait_for_load(running=ROWS)
        (mortal.terminate if number == signal.SIGTERM else mortal.kill)()
        first = [row.result(300) for row in running]
        mortal.start()
        # What a worker does with a row whose reply does not blame it.
        again = [pool.submit(run, before_it, row, timeout=300) for row in rows]
        second = [row.result(300) for row in again]
    assert [reply for reply in first if reply.blame is Blame.ROW] == []
    assert [(reply.status, reply.usage.output_tokens) for reply in second] == [(200, 1000)] * ROWS


def test_the_group_ends_as_a_whole(mortal: VllmServer) -> None:
    core = mortal.engine_core()
    mortal.kill()
    assert psutil.wait_procs([core], timeout=10)[1] == [] or core.status() == psutil.STATUS_ZOMBIE
