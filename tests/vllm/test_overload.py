"""A real vLLM that takes two rows and lets four wait: everything beyond is refused with 503, and no row is lost."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.vllm.engine import MODEL, VllmServer

AT_ONCE = 32


@pytest.fixture(scope="module")
def small(start_vllm: Callable[..., VllmServer]) -> Iterator[VllmServer]:
    server = start_vllm("--max-num-seqs", "2", "--max-num-queued-reqs", "4")
    yield server
    server.close()


def test_it_really_refuses_what_is_too_much(small: VllmServer) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, "ignore_eos": True}
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: client.post(f"{small.url}/v1/chat/completions", json=body), range(AT_ONCE)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 503}
    assert statuses[503] > AT_ONCE / 2
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert "retry-after" not in refused.headers


def test_refused_rows_are_tried_until_all_are_done(small: VllmServer) -> None:
    executor = VLLMExecutor(ExecutorSettings(), small.url)
    rows = [chat_row(model=MODEL, max_tokens=64, ignore_eos=True) for _ in range(2 * AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        replies = list(pool.map(lambda row: run(executor, row, timeout=100), rows))
    executor.close()
    assert [reply.status for reply in replies] == [200] * len(rows)
