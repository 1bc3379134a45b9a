"""Pulling a model through Ollama: whatever goes wrong on the way, only `success` is one (B-28)."""

import threading
import time
from collections.abc import Callable

import pytest

from executors.base import PullFailed
from executors.cancellation import CancelToken, RowCancelled
from tests.executors.ollama import Ollama
from tests.executors.running import chat_row, run

Start = Callable[..., Ollama]
Said = list[tuple[int, int]]
PAUSE = 0.05


def pull(server: Ollama, model: str, token: CancelToken | None = None) -> Said:
    said: Said = []
    server.executor.pull(
        model, progress=lambda completed, total: said.append((completed, total)), cancelled=token or CancelToken()
    )
    return said


def tries(server: Ollama, model: str) -> int:
    return int(server.process.stats()["pulls"][model])


@pytest.mark.parametrize(
    ("model", "expected_tries"),
    [("good", 1), ("backwards", 1), ("errors", 3), ("eof", 3), ("stalls", 2), ("repeats", 2)],
)
def test_a_pull_ends_with_the_whole_model_and_its_progress_never_falls(
    ollama: Start, model: str, expected_tries: int
) -> None:
    server = ollama(pull_stall_seconds=0.5, pull_pause_seconds=PAUSE)
    said = pull(server, model)
    assert said == sorted(said)
    assert said[-1] == (1200, 1200)
    assert all(0 <= completed <= total for completed, total in said)
    assert tries(server, model) == expected_tries
    assert any(model in known.names for known in server.executor.probe().models)
    assert run(server.executor, chat_row(model=model)).ok


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("hopeless", "max retries exceeded: unexpected EOF"),
        ("absent", "pull model manifest: file does not exist"),
        ("refused", "invalid model name"),
    ],
)
def test_a_pull_that_brings_nothing_new_ends_with_ollamas_reason(ollama: Start, model: str, reason: str) -> None:
    server = ollama(pull_pause_seconds=PAUSE)
    with pytest.raises(PullFailed, match=reason):
        pull(server, model)
    assert all(model not in known.names for known in server.executor.probe().models)


def test_a_pull_that_is_refused_is_not_asked_for_again(ollama: Start) -> None:
    server = ollama()
    with pytest.raises(PullFailed):
        pull(server, "refused")
    assert server.process.stats()["requests"]["/api/pull"] == 1


def test_a_cancel_closes_the_connection(ollama: Start) -> None:
    server = ollama()
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    start = time.monotonic()
    with pytest.raises(RowCancelled):
        pull(server, "stalls", token)
    assert time.monotonic() - start < 20
    timer.join()
    server.process.wait_for(lambda stats: stats["aborted"] == 1)


def test_a_dead_ollama_ends_a_pull_with_a_reason(ollama: Start) -> None:
    server = ollama(pull_pause_seconds=PAUSE)
    server.process.kill()
    with pytest.raises(PullFailed, match="Connection refused"):
        pull(server, "good")


def test_an_executor_pulls_only_where_that_is_allowed(ollama: Start) -> None:
    assert not ollama().executor.pulls
    assert ollama(pull_models=True).executor.pulls
