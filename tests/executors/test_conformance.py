"""Every executor keeps the promises of BaseExecutor (AR-03 to AR-07, B-13, B-14)."""

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.domain.rows import Blame, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from tests.executors.rigs import Rig, fake, mocked, own, real
from tests.executors.running import run_begun

BEGUN = ", begun"
OWN = os.environ.get("CONFORMANCE_RIG")
SOON = 10.0
"""Seconds, on a machine that stalls for some of them; less than any row here takes that is not cut."""


@pytest.fixture(params=["own"] if OWN else ["vllm", "vllm, begun", "ollama", "llama-server", "local", "fake"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    if OWN:
        made = own(OWN)
    elif request.param in {"local", "llama-server"}:
        made = real(request.getfixturevalue("local_executor"), over_http=request.param == "llama-server")
    elif request.param == "fake":
        made = fake()
    else:
        made = mocked(request.param.removesuffix(BEGUN), tmp_path)
    with made as found:
        if request.param.endswith(BEGUN):
            found.run = run_begun
        yield found


def test_a_probe_tells_models_endpoints_and_that_it_lives(rig: Rig) -> None:
    row = rig.quick()
    facts = rig.executor.probe()
    assert (facts.alive, facts.reason) == (True, "")
    assert (facts.kind, facts.name) == (rig.executor.kind, rig.executor.name)
    assert facts.serves(model=row.model, endpoint=row.endpoint)
    assert not facts.serves(model="another", endpoint=row.endpoint)


def test_a_reply_is_one_line_of_ascii_json_with_its_tokens_counted(rig: Rig) -> None:
    row = rig.quick()
    reply = rig.run(rig.executor, row, timeout=60)
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
        replies = list(pool.map(lambda row: rig.run(rig.executor, row, timeout=100), rows))
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
    assert 0.25 < time.monotonic() - start < SOON


def test_a_slow_row_ends_soon_after_its_cancel(rig: Rig) -> None:
    token = CancelToken()
    timer = threading.Timer(0.3, token.cancel)
    timer.start()
    start = time.monotonic()
    with pytest.raises(RowCancelled):
        rig.run_slow(timeout=60, cancelled=token)
    assert time.monotonic() - start < SOON
    timer.join()


def test_a_row_cancelled_before_it_starts_never_runs(rig: Rig) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(RowCancelled):
        rig.run(rig.executor, rig.quick(), cancelled=token)


def test_after_close_rows_fail_at_once_and_closing_again_is_nothing(rig: Rig) -> None:
    executor = rig.anew() if rig.anew else rig.executor
    executor.close()
    executor.close()
    start = time.monotonic()
    reply = rig.run(executor, rig.quick(), timeout=30)
    assert reply.error is not None
    assert (reply.error.code, reply.blame) == (RowErrorCode.RUNTIME_UNAVAILABLE, Blame.RUNTIME)
    assert time.monotonic() - start < SOON


def test_a_dead_runtime_makes_a_probe_with_a_reason_and_unavailable_rows(rig: Rig) -> None:
    if rig.dead is None:
        pytest.skip("no test can kill it; the local model's death is in test_local")
    executor = rig.dead()
    start = time.monotonic()
    facts = executor.probe()
    assert time.monotonic() - start < executor.settings.probe_seconds + SOON
    assert not facts.alive
    assert facts.reason
    reply = rig.run(executor, rig.quick(), timeout=0.6)
    assert reply.error is not None
    assert (reply.error.code, reply.blame) == (RowErrorCode.RUNTIME_UNAVAILABLE, Blame.RUNTIME)
