"""Every executor keeps the promises of BaseExecutor (AR-03 to AR-07, B-13, B-14)."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from app.domain.rows import Reply, Row, RowErrorCode
from executors.base import BaseExecutor
from executors.cancellation import CancelToken, RowCancelled
from executors.fakes import FakeExecutor
from executors.runtimes.local import MODEL_ALIAS, LocalExecutor
from executors.runtimes.ollama import OllamaExecutor
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.ollama_process import start_ollama
from tests.fakes.runtime_process import RuntimeProcess, start_runtime

SETTINGS = ExecutorSettings()


@dataclass
class Rig:
    """One executor, a row it answers at once and a row that takes far longer than a test."""

    executor: BaseExecutor
    quick: Callable[[], Row]
    slow: Callable[[], Row]
    echoes: bool = True
    die: Callable[[], None] | None = None
    slow_executor: BaseExecutor | None = None

    def run_slow(self, *, timeout: float, cancelled: CancelToken | None = None) -> Reply:
        return run(self.slow_executor or self.executor, self.slow(), timeout=timeout, cancelled=cancelled)


def hanging_row() -> Row:
    return chat_row(user="hang=1")


def _served(
    kind: type[OllamaExecutor | VLLMExecutor], runtime: RuntimeProcess, slow: Callable[[], Row] = hanging_row
) -> Rig:
    return Rig(
        executor=kind(SETTINGS, runtime.url),
        quick=chat_row,
        slow=slow,
        die=runtime.kill,
    )


@pytest.fixture(params=["vllm", "ollama", "llama-server", "local", "fake"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    folder = request.getfixturevalue("tmp_path")
    runtime = None
    if request.param in {"local", "llama-server"}:
        local: LocalExecutor = request.getfixturevalue("local_executor")
        made = Rig(
            # llama.cpp's own server is an OpenAI server like any other, to who has its URL.
            executor=local if request.param == "local" else VLLMExecutor(SETTINGS, local.server_url),
            quick=lambda: chat_row(model=MODEL_ALIAS, max_tokens=4),
            slow=lambda: chat_row("Count to a million.", model=MODEL_ALIAS, max_tokens=1500, ignore_eos=True),
            echoes=False,
        )
    elif request.param == "fake":
        made = Rig(
            executor=FakeExecutor(SETTINGS),
            quick=lambda: chat_row(model="fake"),
            slow=lambda: chat_row(model="fake"),
            slow_executor=FakeExecutor(SETTINGS, "fake:?hang_every=1"),
        )
    elif request.param == "ollama":
        runtime = start_ollama(folder, "--parallel", 4)
        made = _served(OllamaExecutor, runtime, slow=lambda: chat_row("{{hang}}"))
    else:
        runtime = start_runtime(folder)
        made = _served(VLLMExecutor, runtime)
    yield made
    if request.param != "local":
        made.executor.close()
    if runtime:
        runtime.kill()


def test_a_probe_tells_models_endpoints_and_that_it_lives(rig: Rig) -> None:
    row = rig.quick()
    facts = rig.executor.probe()
    assert (facts.alive, facts.reason) == (True, "")
    assert (facts.kind, facts.name) == (rig.executor.kind, rig.executor.name)
    assert facts.serves(model=row.model, endpoint=row.endpoint)
    assert not facts.serves(model="another", endpoint=row.endpoint)


def test_a_reply_is_one_line_of_ascii_json_with_its_tokens_counted(rig: Rig) -> None:
    row = rig.quick()
    reply = run(rig.executor, row, timeout=60)
    assert reply.ok
    assert reply.body is not None
    assert len(reply.body.decode("ascii").splitlines()) == 1
    answer = json.loads(reply.body)
    assert answer["choices"][0]["message"]["content"]
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.request_id


def test_rows_of_many_threads_get_their_own_answers(rig: Rig) -> None:
    rows = [rig.quick() for _ in range(64 if rig.echoes else 8)]
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda row: run(rig.executor, row, timeout=100), rows))
    assert all(reply.ok for reply in replies)
    if rig.echoes:
        assert all(
            f"[[{row.custom_id}]]".encode() in (reply.body or b"") for row, reply in zip(rows, replies, strict=True)
        )


def test_a_slow_row_times_out(rig: Rig) -> None:
    start = time.monotonic()
    reply = rig.run_slow(timeout=0.3)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.REQUEST_TIMEOUT
    assert 0.25 < time.monotonic() - start < 3


def test_a_slow_row_ends_soon_after_its_cancel(rig: Rig) -> None:
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    start = time.monotonic()
    with pytest.raises(RowCancelled):
        rig.run_slow(timeout=60, cancelled=token)
    assert time.monotonic() - start < 3
    timer.join()


def test_a_row_cancelled_before_it_starts_never_runs(rig: Rig) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(RowCancelled):
        run(rig.executor, rig.quick(), cancelled=token)


def test_after_close_rows_fail_at_once_and_closing_again_is_nothing(rig: Rig) -> None:
    if isinstance(rig.executor, LocalExecutor):
        rig.executor = LocalExecutor(SETTINGS)  # the other one is for the other tests
    rig.executor.close()
    rig.executor.close()
    start = time.monotonic()
    reply = run(rig.executor, rig.quick(), timeout=30)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.RUNTIME_UNAVAILABLE
    assert time.monotonic() - start < 1


@pytest.mark.parametrize("rig", ["vllm", "ollama", "fake"], indirect=True)  # a local one is started again: test_local
def test_a_dead_runtime_makes_a_probe_with_a_reason_and_unavailable_rows(rig: Rig) -> None:
    if isinstance(rig.executor, FakeExecutor):
        rig.executor = FakeExecutor(SETTINGS, "fake:?dead=1")
    elif rig.die:
        rig.die()
    start = time.monotonic()
    facts = rig.executor.probe()
    assert time.monotonic() - start < SETTINGS.probe_seconds + 1
    assert not facts.alive
    assert facts.reason
    reply = run(rig.executor, rig.quick(), timeout=0.6)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.RUNTIME_UNAVAILABLE
