"""Servers that start, drown, hang and die as real ones were seen to, and what becomes of their rows."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.rows import Blame, Reply, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.cells import SERVERS
from tests.executors.running import chat_row, run, wait_until_alive
from tests.fakes.runtime_process import RuntimeProcess

KEY = "right"

Start = Callable[..., RuntimeProcess]
Connect = Callable[..., VLLMExecutor]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Give executors by the runtime they are for; they end with the test."""
    made: list[VLLMExecutor] = []

    def build(runtime: RuntimeProcess, **settings: object) -> VLLMExecutor:
        made.append(VLLMExecutor(ExecutorSettings(**settings), runtime.url))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for executor in made:
        executor.close()


def in_the_background(executor: VLLMExecutor, *, seconds: float = 5, **fields: object) -> Callable[[], Reply]:
    """Send a row in a thread, and give what waits for its reply."""
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(run(executor, chat_row(**fields), timeout=seconds)))
    thread.start()

    def reply() -> Reply:
        thread.join(30)
        return replies[0]

    return reply


# --- starting


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_refuses_while_it_starts_takes_rows_once_it_listens(
    runtime_server: Start, connect: Connect, server: str
) -> None:
    executor = connect(runtime_server("--like", server, "--opens-after", 0.5))
    facts = executor.probe()
    assert (facts.alive, "refused" in facts.reason) == (False, True)
    wait_until_alive(executor)
    assert run(executor, chat_row()).ok


def test_a_server_that_loads_its_model_says_so_and_costs_no_row(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "llama-server", "--state", "loading")
    executor = connect(runtime)
    facts = executor.probe()
    assert not facts.alive
    assert "loading its model" in facts.reason
    reply = in_the_background(executor, seconds=20)
    runtime.wait_for(lambda stats: stats["requests"] > 1)
    runtime.post("/finish-loading")
    assert reply().ok
    assert executor.probe().alive


def test_a_server_without_health_is_known_by_its_models(runtime_server: Start, connect: Connect) -> None:
    executor = connect(runtime_server("--like", "llama-cpp-python"))
    facts = executor.probe()
    assert (facts.alive, [model.id for model in facts.models]) == (True, ["mock"])
    assert executor.probe() == facts


# --- the steady state


def test_models_are_listed_once_and_again_when_something_happened(
    runtime_server: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_server()
    executor = connect(runtime)
    for _ in range(5):
        assert executor.probe().alive
    asked = runtime.stats()["asked"]
    assert (asked["/v1/models"], asked["/health"], asked["/version"]) == (1, 5, 1)
    assert run(executor, chat_row(model="gone")).status == 404
    executor.probe()
    assert runtime.stats()["asked"]["/v1/models"] == 2
    assert run(executor, chat_row(user="cut=1;times=1")).status in {200, None}
    executor.probe()
    executor.probe()
    assert runtime.stats()["asked"]["/v1/models"] == 3
    hour = time.monotonic() + 3600
    monkeypatch.setattr(time, "monotonic", lambda: hour)
    executor.probe()
    assert runtime.stats()["asked"]["/v1/models"] == 4


def test_models_are_listed_again_when_somebody_asks_for_them(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "vllm", "--models", "old")
    executor = connect(runtime)
    assert executor.probe().serves(model="old", endpoint="/v1/chat/completions")
    runtime.post("/become/new")
    executor.forget()
    assert executor.probe().serves(model="new", endpoint="/v1/chat/completions")


# --- models


def test_another_model_behind_the_same_url_gets_no_row_of_the_old_one(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "llama-server", "--models", "old")
    executor = connect(runtime)
    assert executor.probe().serves(model="old", endpoint="/v1/chat/completions")
    assert run(executor, chat_row(model="old")).ok
    runtime.post("/become/new")
    reply = run(executor, chat_row(model="old"))
    assert reply.error is not None
    assert (reply.error.code, reply.blame) == (RowErrorCode.RUNTIME_UNAVAILABLE, Blame.RUNTIME)
    assert not executor.probe().serves(model="old", endpoint="/v1/chat/completions")
    assert run(executor, chat_row(model="new")).ok


def test_a_model_that_went_is_looked_for_with_each_look_and_known_as_soon_as_it_is_back(
    runtime_server: Start, connect: Connect
) -> None:
    """No row asks for it while it is away, so nothing else would tell of it for a minute."""
    runtime = runtime_server("--like", "vllm", "--models", "old")
    executor = connect(runtime)
    assert executor.probe().serves(model="old", endpoint="/v1/chat/completions")
    runtime.post("/become/new")
    assert run(executor, chat_row(model="old")).status == 404
    for _ in range(2):
        assert not executor.probe().serves(model="old", endpoint="/v1/chat/completions")
    runtime.post("/become/old")
    assert executor.probe().serves(model="old", endpoint="/v1/chat/completions")


def test_a_runtime_may_call_its_model_as_it_likes(mock: RuntimeProcess, vllm: VLLMExecutor) -> None:
    vllm.probe()
    for _ in range(5):
        reply = run(vllm, chat_row(user='raw={"model": "/models/mock.gguf", "choices": [{}]}'))
        assert reply.ok
    assert mock.stats()["asked"]["/v1/models"] == 2


# --- many rows at once


@pytest.mark.parametrize(
    ("server", "slots"), [("vllm", 64), ("llama-server", 4), ("llama-cpp-python", 1), ("transformers", 1)]
)
def test_64_rows_at_once_are_all_answered(runtime_server: Start, connect: Connect, server: str, slots: int) -> None:
    runtime = runtime_server("--like", server, "--slots", slots, "--latency-ms", 5)
    executor = connect(runtime)
    with ThreadPoolExecutor(64) as pool:
        replies = list(pool.map(lambda _: run(executor, chat_row(), timeout=30), range(64)))
    assert all(reply.ok for reply in replies)
    stats = runtime.stats()
    assert (stats["requests"], stats["repeated_marks"]) == (64, 0)


def test_a_full_queue_is_waited_for(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "vllm", "--state", "overloaded", "--slots", 2, "--latency-ms", 20)
    executor = connect(runtime)
    with ThreadPoolExecutor(32) as pool:
        replies = list(pool.map(lambda _: run(executor, chat_row(), timeout=30), range(32)))
    assert all(reply.ok for reply in replies)
    assert runtime.stats()["requests"] > 32


@pytest.mark.parametrize("server", ["llama-server", "llama-cpp-python", "transformers"])
def test_a_server_without_a_bound_is_sent_each_row_once(runtime_server: Start, connect: Connect, server: str) -> None:
    runtime = runtime_server("--like", server, "--slots", 1, "--latency-ms", 5)
    executor = connect(runtime)
    with ThreadPoolExecutor(8) as pool:
        assert all(reply.ok for reply in pool.map(lambda _: run(executor, chat_row(), timeout=30), range(8)))
    assert runtime.stats()["requests"] == 8


def test_a_server_whose_threads_are_all_taken_by_rows_is_busy_not_dead(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "llama-server", "--slots", 4, "--latency-ms", 60_000)
    executor = connect(runtime, probe_seconds=0.3)
    before = executor.probe()
    token = CancelToken()

    def cut() -> None:
        with pytest.raises(RowCancelled):
            run(executor, chat_row(), timeout=60, cancelled=token)

    with ThreadPoolExecutor(12) as pool:
        rows = [pool.submit(cut) for _ in range(12)]
        runtime.wait_for(lambda stats: stats["in_flight"] == 12)
        start = time.monotonic()
        facts, seconds = executor.probe(), time.monotonic() - start
        token.cancel()
        for row in rows:
            row.result(10)
    assert facts == before
    assert seconds < 10
    runtime.wait_for(lambda stats: stats["in_flight"] == 0)
    assert executor.probe() == before


# --- keys and ids


@pytest.mark.parametrize(("server", "said"), [("vllm", "Unauthorized"), ("llama-server", "Invalid API Key")])
def test_a_wrong_key_is_the_runtimes_trouble_and_no_rows_and_has_the_servers_words(
    runtime_server: Start, connect: Connect, server: str, said: str
) -> None:
    runtime = runtime_server("--like", server, "--api-key", KEY)
    reply = run(connect(runtime, api_key="wrong"), chat_row())
    assert (reply.status, reply.blame) == (401, Blame.RUNTIME)
    assert f'"message": "{said}"'.encode() in (reply.body or b"")
    assert run(connect(runtime, api_key=KEY), chat_row()).ok


def test_a_server_without_keys_takes_any(runtime_server: Start, connect: Connect) -> None:
    assert run(connect(runtime_server("--like", "transformers"), api_key="any"), chat_row()).ok


@pytest.mark.parametrize("server", SERVERS)
def test_rows_carry_an_id_and_a_type_that_every_server_takes(
    runtime_server: Start, connect: Connect, server: str
) -> None:
    runtime = runtime_server("--like", server)
    reply = run(connect(runtime), chat_row())
    headers = runtime.stats()["headers"]
    assert reply.ok
    assert headers["content-type"] == "application/json"
    assert reply.request_id == headers["x-request-id"]


# --- death


def test_vllm_that_is_told_to_stop_answers_500_and_its_row_is_not_lost(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "vllm", "--latency-ms", 60_000)
    executor = connect(runtime)
    assert executor.probe().alive
    reply = in_the_background(executor)
    runtime.wait_for(lambda stats: stats["in_flight"] == 1)
    os.kill(runtime.process.pid, signal.SIGTERM)
    assert not_an_answer(reply())
    runtime.process.wait(10)
    assert "refused" in executor.probe().reason


def test_vllm_whose_engine_is_dead_says_so_by_its_health(runtime_server: Start, connect: Connect) -> None:
    executor = connect(runtime_server("--like", "vllm", "--state", "dead"))
    facts = executor.probe()
    assert (facts.alive, "health" in facts.reason) == (False, True)
    assert not_an_answer(run(executor, chat_row()))


def test_vllm_whose_engine_hangs_looks_well_and_its_rows_time_out(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "vllm", "--state", "hung")
    executor = connect(runtime)
    reply = run(executor, chat_row(), timeout=0.5)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.REQUEST_TIMEOUT
    assert executor.probe().alive
    runtime.wait_for(lambda stats: stats["in_flight"] == 0 and stats["aborted"] == 1)


def test_llama_server_that_is_told_to_stop_hangs_and_is_given_up(runtime_server: Start, connect: Connect) -> None:
    runtime = runtime_server("--like", "llama-server", "--latency-ms", 60_000)
    executor = connect(runtime, probe_seconds=0.3)
    assert executor.probe().alive
    reply = in_the_background(executor, seconds=1.5)
    runtime.wait_for(lambda stats: stats["in_flight"] == 1)
    os.kill(runtime.process.pid, signal.SIGTERM)
    assert not_an_answer(reply())
    assert runtime.process.poll() is None
    assert not executor.probe().alive


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_llama_cpp_inside_python_cuts_its_rows(runtime_server: Start, connect: Connect, end: signal.Signals) -> None:
    runtime = runtime_server("--like", "xllamacpp", "--latency-ms", 60_000)
    executor = connect(runtime)
    assert executor.probe().alive
    reply = in_the_background(executor)
    runtime.wait_for(lambda stats: stats["in_flight"] == 1)
    os.kill(runtime.process.pid, end)
    assert not_an_answer(reply())
    runtime.process.wait(10)
    assert "refused" in executor.probe().reason


@pytest.mark.parametrize("server", ["llama-cpp-python", "transformers"])
def test_servers_that_finish_first_lose_no_row(runtime_server: Start, connect: Connect, server: str) -> None:
    runtime = runtime_server("--like", server, "--latency-ms", 300)
    executor = connect(runtime)
    reply = in_the_background(executor)
    runtime.wait_for(lambda stats: stats["in_flight"] == 1)
    os.kill(runtime.process.pid, signal.SIGTERM)
    assert reply().ok
    runtime.process.wait(10)
    assert not executor.probe().alive


def not_an_answer(reply: Reply) -> bool:
    """Tell a reply that is not the row's own failure: what it holds is the runtime's trouble."""
    return reply.status == 500 or (reply.error is not None and reply.error.code != RowErrorCode.INTERNAL_ERROR)
