"""What a real vLLM works on, by its own gauges: our rows, and nothing once they were cancelled or timed out."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from app.domain.rows import Reply, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row, run
from tests.vllm.engine import MODEL, VllmServer

ROWS = 8


@pytest.fixture(autouse=True)
def _idle(server: VllmServer) -> None:
    server.wait_for_load(running=0)


def start_long_rows(
    pool: ThreadPoolExecutor, executor: VLLMExecutor, *, timeout: float, cancelled: CancelToken
) -> list[Future[Reply]]:
    rows = [chat_row("Count.", model=MODEL, max_tokens=1900, ignore_eos=True) for _ in range(ROWS)]
    return [pool.submit(run, executor, row, timeout=timeout, cancelled=cancelled) for row in rows]


def test_the_gauges_count_what_runs_and_nothing_waits(server: VllmServer, executor: VLLMExecutor) -> None:
    token = CancelToken()
    with ThreadPoolExecutor(ROWS) as pool:
        start_long_rows(pool, executor, timeout=60, cancelled=token)
        server.wait_for_load(running=ROWS)
        load = executor.load()
        token.cancel()
    assert load is not None
    assert (load.running, load.waiting) == (ROWS, 0)


def test_a_cancel_ends_the_work_on_the_engine_within_seconds(server: VllmServer, executor: VLLMExecutor) -> None:
    token = CancelToken()
    with ThreadPoolExecutor(ROWS) as pool:
        rows = start_long_rows(pool, executor, timeout=60, cancelled=token)
        server.wait_for_load(running=ROWS)
        token.cancel()
        assert server.wait_for_load(running=0, seconds=3) < 3
        for row in rows:
            with pytest.raises(RowCancelled):
                row.result(5)


def test_a_time_out_ends_the_work_on_the_engine_within_seconds(server: VllmServer, executor: VLLMExecutor) -> None:
    with ThreadPoolExecutor(ROWS) as pool:
        rows = start_long_rows(pool, executor, timeout=4.0, cancelled=CancelToken())
        server.wait_for_load(running=ROWS)
        errors = [row.result(10).error for row in rows]
        assert server.wait_for_load(running=0, seconds=3) < 3
    assert {error.code for error in errors if error} == {RowErrorCode.REQUEST_TIMEOUT}
