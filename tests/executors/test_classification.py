"""What becomes of a row, for every kind of answer a runtime was seen to give (B-14)."""

import json
import threading
import time

import pytest

from app.domain.rows import Blame, RowErrorCode
from executors.cancellation import CancelToken, RowCancelled
from executors.runtimes.openai_compatible import TimeLimit
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess


@pytest.mark.parametrize(
    ("orders", "status", "requests"),
    [
        ("", 200, 1),
        ("chunked=1", 200, 1),
        ("status=400", 400, 1),
        ('status=401;raw={"error":"Unauthorized"}', 401, 1),
        ("status=404", 404, 1),
        ("status=413;raw=Request Entity Too Large;type=text/plain", 413, 1),
        ('status=422;raw={"detail":[]}', 422, 1),
        ("status=429;times=2;header=Retry-After: 0", 200, 3),
        ("status=502;times=1;raw=<html>", 200, 2),
        ("status=503;times=1", 200, 2),
        ("status=504;times=1", 200, 2),
        ("status=500;times=2", 200, 3),
        ("status=500", 500, 3),
        ("status=501", 501, 1),
        ('raw={"error":{"message":"bad","code":400}}', 400, 1),
        ('raw={"error":{"message":"engine died"}}', 500, 3),
        ('raw={"error":null,"choices":[{}]}', 200, 1),
        ('raw={"error":"","choices":[{}]}', 200, 1),
        ('raw={"error":"engine died"}', 500, 3),
        ('raw={"error":{"message":"bad"},"choices":null}', 500, 3),
        ("status=500;raw=the prompt exceeds the maximum context length of 2048 tokens", 500, 1),
        ('raw=data: {"choices":[]}\\n\\ndata: {"error":{"message":"died","code":501}}\\n\\ndata: [DONE]', 501, 1),
    ],
)
def test_the_runtime_answered(
    vllm: VLLMExecutor, mock: RuntimeProcess, orders: str, status: int, requests: int
) -> None:
    reply = run(vllm, chat_row(user=orders))
    assert (reply.status, mock.stats()["requests"]) == (status, requests)
    assert isinstance(json.loads(reply.body or b""), dict)
    assert reply.error is None


@pytest.mark.parametrize(
    ("orders", "code", "said", "requests"),
    [
        ("cut=1", RowErrorCode.RUNTIME_UNAVAILABLE, "closed before", 1),
        ("cut=2", RowErrorCode.RUNTIME_UNAVAILABLE, "closed before", 1),
        ("raw=hello;type=text/plain", RowErrorCode.INTERNAL_ERROR, "hello", 1),
        ("raw=[1]", RowErrorCode.INTERNAL_ERROR, "[1]", 1),
        ('raw={"choices":[]}', RowErrorCode.INTERNAL_ERROR, "asked for n=1, the runtime answered 0 choices", 1),
        ('raw={"choices":[{},{}]}', RowErrorCode.INTERNAL_ERROR, "answered 2 choices", 1),
        ('raw={"object":"chat.completion"}', RowErrorCode.INTERNAL_ERROR, "answered 0 choices", 1),
        ('raw={"choices":null}', RowErrorCode.INTERNAL_ERROR, "not the shape of /v1/chat/completions", 1),
        ('raw={"choices":[7]}', RowErrorCode.INTERNAL_ERROR, "not the shape of /v1/chat/completions", 1),
        ('raw={"choices":[{}]', RowErrorCode.INTERNAL_ERROR, "without a JSON object", 1),
        ("raw=data: {}\\n\\ndata: [DONE]", RowErrorCode.INTERNAL_ERROR, "answered with a stream", 1),
        ('raw={"a":NaN}', RowErrorCode.INTERNAL_ERROR, "NaN", 1),
        ("raw= ", RowErrorCode.INTERNAL_ERROR, "an empty body", 1),
        ("status=302;header=Location: http://there/", RowErrorCode.RUNTIME_UNAVAILABLE, "http://there/", 1),
    ],
)
def test_the_runtime_gave_no_answer_of_the_api(
    vllm: VLLMExecutor, mock: RuntimeProcess, orders: str, code: RowErrorCode, said: str, requests: int
) -> None:
    reply = run(vllm, chat_row(user=orders))
    assert reply.error is not None
    assert reply.error.code is code
    assert said in reply.error.message
    assert (reply.status, reply.body) == (None, None)
    assert mock.stats()["requests"] == requests


def test_what_the_runtime_broke_off_is_no_answer_and_the_row_may_run_again(vllm: VLLMExecutor) -> None:
    half = '{"choices":[{"message":{"content":"ha"},"finish_reason":"abort"}],"usage":{"completion_tokens":1}}'
    reply = run(vllm, chat_row(user="raw=" + half))
    assert (reply.status, reply.body, reply.blame) == (None, None, Blame.UNCLEAR)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.RUNTIME_UNAVAILABLE
    whole = half.replace("abort", "length")
    assert run(vllm, chat_row(user="raw=" + whole)).ok


def test_text_with_an_error_status_becomes_an_error_of_openais_shape(vllm: VLLMExecutor) -> None:
    reply = run(vllm, chat_row(user="status=403;raw=<h1>No\\n</h1>;type=text/html"))
    assert json.loads(reply.body or b"")["error"] == {
        "message": "the runtime answered 403: <h1>No\n</h1>",
        "type": "runtime_error",
        "param": None,
        "code": None,
    }


def test_retry_after_is_waited_for(vllm: VLLMExecutor) -> None:
    start = time.monotonic()
    assert run(vllm, chat_row(user="status=503;times=1;header=Retry-After: 1")).ok
    assert time.monotonic() - start > 1


def test_a_wait_that_would_pass_the_rows_time_is_not_begun(vllm: VLLMExecutor) -> None:
    start = time.monotonic()
    reply = run(vllm, chat_row(user="status=503;header=Retry-After: 25"), timeout=20)
    assert reply.status == 503
    assert time.monotonic() - start < 15


def test_a_time_out_holds_for_the_whole_answer_and_closes_the_connection(
    vllm: VLLMExecutor, mock: RuntimeProcess
) -> None:
    start = time.monotonic()
    reply = run(vllm, chat_row(user="trickle_ms=50"), timeout=0.5)
    assert reply.error is not None
    assert reply.error.code is RowErrorCode.REQUEST_TIMEOUT
    assert time.monotonic() - start < 10
    run(vllm, chat_row(user="hang=1"), timeout=0.2)
    mock.wait_for(lambda stats: stats["aborted"] == 1 and stats["in_flight"] == 0)


def test_an_answer_beyond_the_limit_fails_its_row_only(mock: RuntimeProcess) -> None:
    executor = VLLMExecutor(ExecutorSettings(max_answer_bytes=1000), mock.url)
    for orders in ("", "chunked=1;"):
        reply = run(executor, chat_row(user=orders + "raw=" + json.dumps({"x": "y" * 2000})))
        assert reply.error is not None
        assert reply.error.code is RowErrorCode.INTERNAL_ERROR
        assert "1000" in reply.error.message
    assert run(executor, chat_row()).ok
    executor.close()


def test_a_cancel_ends_the_wait_between_two_tries(vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
    token = CancelToken()

    def cancel_once_refused() -> None:
        mock.wait_for(lambda stats: stats["requests"] == 1)
        token.cancel()

    thread = threading.Thread(target=cancel_once_refused)
    thread.start()
    start = time.monotonic()
    with pytest.raises(RowCancelled):
        run(vllm, chat_row(user="status=503;header=Retry-After: 25"), timeout=60, cancelled=token)
    assert time.monotonic() - start < 15
    thread.join()


def test_a_row_that_ends_its_server_on_a_kept_connection_is_unclear(vllm: VLLMExecutor) -> None:
    assert run(vllm, chat_row()).ok
    reply = run(vllm, chat_row(user="die=1"))
    assert (reply.blame, reply.error and reply.error.code) == (Blame.UNCLEAR, RowErrorCode.RUNTIME_UNAVAILABLE)


@pytest.mark.parametrize(
    ("orders", "blame"),
    [
        ("", Blame.ROW),
        ("status=400", Blame.ROW),
        ("status=503", Blame.RUNTIME),
        ("status=429;header=Retry-After: 60", Blame.RUNTIME),
        ("status=500", Blame.UNCLEAR),
        ("status=500;times=1", Blame.ROW),
        ("cut=1", Blame.UNCLEAR),
        ("hang=1", Blame.ROW),
    ],
)
def test_a_reply_says_whose_doing_it_is(vllm: VLLMExecutor, orders: str, blame: Blame) -> None:
    reply = run(vllm, chat_row(user=orders), timeout=1.0)
    assert reply.blame is blame
    assert reply.retry_after == (60.0 if "60" in orders else 0.0)


def test_a_runtime_that_is_not_there_is_tried_a_few_times_and_blamed(vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
    mock.kill()
    start = time.monotonic()
    assert run(vllm, chat_row(), timeout=60).blame is Blame.RUNTIME
    assert time.monotonic() - start < 30


def test_a_try_that_gets_only_the_rest_of_a_refused_rows_time_is_no_time_out(vllm: VLLMExecutor) -> None:
    """The worker runs a refused row again with all of its time; one that timed out may be kept as failed."""
    reply = run(vllm, chat_row(user="status=503;latency_ms=700"), timeout=1.2)
    assert (reply.status, reply.blame) == (503, Blame.RUNTIME)
    limit = TimeLimit(2.0)
    assert limit.was_short(time.monotonic())
    assert not limit.was_short(time.monotonic() - 1.5)
