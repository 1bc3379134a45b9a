"""A cancel reaches what waits on the network, and nothing else."""

import threading

import pytest

from executors.cancellation import CancelToken, RowCancelled
from executors.runtimes.vllm import VLLMExecutor
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess


def test_a_cancel_closes_the_connections_of_all_rows_so_that_the_runtime_stops(
    vllm: VLLMExecutor, mock: RuntimeProcess
) -> None:
    token = CancelToken()
    outcomes: list[str] = []

    def work() -> None:
        try:
            run(vllm, chat_row(user="hang=1"), timeout=60, cancelled=token)
        except RowCancelled:
            outcomes.append("cancelled")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    mock.wait_for(lambda stats: stats["in_flight"] == 8)
    token.cancel()
    for thread in threads:
        thread.join(30)  # half of the rows' own time
    assert outcomes == ["cancelled"] * 8
    mock.wait_for(lambda stats: stats["aborted"] == 8 and stats["in_flight"] == 0)


def test_a_cancel_leaves_the_rows_of_other_tokens_alone(vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
    token = CancelToken()
    assert run(vllm, chat_row(), cancelled=token).ok  # its connection is kept, and the next row takes it
    other = threading.Thread(target=lambda: replies.append(run(vllm, chat_row(user="latency_ms=500"))))
    replies: list[object] = []
    other.start()
    mock.wait_for(lambda stats: stats["in_flight"] == 1)
    token.cancel()
    other.join(10)
    assert [getattr(reply, "ok", None) for reply in replies] == [True]
    assert mock.stats()["requests"] == 2


def test_watchers_run_once_and_only_while_they_watch() -> None:
    token = CancelToken()
    seen: list[str] = []
    with token.watching(lambda: seen.append("before")):
        pass
    with token.watching(lambda: seen.append("during")):
        token.cancel()
        token.cancel()
    assert seen == ["during"]
    with pytest.raises(RowCancelled), token.watching(lambda: seen.append("after")):
        raise AssertionError("it was cancelled before")
    with pytest.raises(RowCancelled):
        token.sleep(60)
