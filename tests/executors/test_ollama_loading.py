"""A row's time begins when its model is loaded; Ollama's own limits are known."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.rows import Blame, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from tests.executors.ollama import CHAT, EMBEDDINGS, Ollama, error_of
from tests.executors.running import chat_row, row_of, run

Start = Callable[..., Ollama]


@pytest.mark.parametrize(
    "row", [chat_row(), row_of("/v1/completions", prompt="Hi"), row_of(EMBEDDINGS, model="embed", input="Hi")]
)
def test_loading_a_model_is_not_charged_to_the_row(ollama: Start, row: object) -> None:
    server = ollama("--load-ms", 1500)
    rows = [row] * 4
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda one: run(server.executor, one, timeout=1), rows))  # type: ignore[arg-type]
    assert all(reply.ok for reply in replies), replies
    assert len(server.process.stats()["loads"]) == 1


def test_a_row_that_hangs_once_its_model_is_loaded_still_times_out(ollama: Start) -> None:
    server = ollama("--load-ms", 300)
    start = time.monotonic()
    reply = run(server.executor, chat_row("{{hang}}"), timeout=0.5)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.REQUEST_TIMEOUT
    assert time.monotonic() - start < 20


def test_a_load_has_a_bound_of_its_own_and_is_not_the_rows_fault(ollama: Start) -> None:
    server = ollama("--load-ms", 60_000, model_load_seconds=0.4)
    start = time.monotonic()
    reply = run(server.executor, chat_row(), timeout=30)
    assert time.monotonic() - start < 20
    assert reply.error is not None
    assert (reply.error.code, reply.blame) == (RowErrorCode.RUNTIME_UNAVAILABLE, Blame.RUNTIME)
    assert "not loaded within 0.4 s" in reply.error.message


def test_a_cancel_ends_the_wait_for_a_model_and_others_wait_on(ollama: Start) -> None:
    server = ollama("--load-ms", 1500)
    token = CancelToken()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, server.executor, chat_row(), cancelled=token)
        server.process.wait_for(lambda stats: stats["loads"] == ["mock:latest"])
        second = pool.submit(run, server.executor, chat_row())
        token.cancel()
        with pytest.raises(RowCancelled):
            first.result(timeout=1)
        assert second.result(timeout=10).ok


def test_a_warm_model_is_not_asked_for_again(server: Ollama) -> None:
    for _ in range(5):
        assert run(server.executor, chat_row()).ok
    assert server.process.stats()["requests"]["/api/chat"] <= 6


def test_a_model_that_is_not_there_is_said_in_ollamas_words(ollama: Start) -> None:
    server = ollama()
    reply = run(server.executor, chat_row(model="nope"))
    assert (reply.status, error_of(reply)["message"]) == (404, 'model "nope" not found, try pulling it first')


def test_a_busy_ollama_is_asked_again(ollama: Start) -> None:
    server = ollama("--load-ms", 700, "--max-queue", 1, "--models", "a,b,c")
    rows = [chat_row(model=model) for model in ("a", "b", "c")]
    with ThreadPoolExecutor(3) as pool:
        assert all(reply.ok for reply in pool.map(lambda row: run(server.executor, row, timeout=20), rows))
    assert server.process.stats()["requests"]["/api/chat"] > 6


def test_rows_that_reload_a_model_are_of_other_groups(server: Ollama) -> None:
    group = server.executor.group
    plain = group(chat_row())
    assert plain == group(chat_row(model="mock:latest", temperature=0.5, options={"temperature": 1, "num_predict": 5}))
    assert plain != group(chat_row(model="think"))
    large = group(chat_row(options={"num_ctx": 8192}))
    assert plain != large
    assert large == group(chat_row(options={"top_k": 4, "num_ctx": 8192}))
    assert len({plain, large}) == 2


def test_other_options_load_the_model_anew_and_the_same_do_not(ollama: Start) -> None:
    server = ollama()
    for context in (512, 512, 1024, 1024):
        assert run(server.executor, chat_row(options={"num_ctx": context})).ok
    assert len(server.process.stats()["loads"]) == 2


def test_the_limit_is_what_ollama_works_on_at_once(ollama: Start) -> None:
    server = ollama("--parallel", 4, "--models", "mock,embed,qwen3vl", ollama_num_parallel=4)
    assert server.executor.probe().slots == 4
    assert server.executor.limit(chat_row()) == 4
    assert server.executor.limit(row_of(EMBEDDINGS, model="embed", input="x")) == 1
    assert server.executor.limit(chat_row(model="qwen3vl")) == 1
    assert ollama().executor.limit(chat_row()) == 1


def test_a_cancel_ends_the_work_on_a_row(server: Ollama) -> None:
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    with pytest.raises(RowCancelled):
        run(server.executor, chat_row("{{hang}}"), timeout=60, cancelled=token)
    timer.join()
    server.process.wait_for(lambda stats: stats["in_flight"] == 0)
    assert run(server.executor, row_of(CHAT, messages=[{"role": "user", "content": "again"}])).ok
