"""A row that is begun costs no thread, and keeps every promise of one that is waited for."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from app.domain.rows import Reply, Row, RowErrorCode
from executors.base import Ending
from executors.cancellation import CancelToken, RowCancelled
from executors.http_client import HttpClient
from executors.http_loop import Outcome
from executors.http_wire import Answer
from executors.request_ids import new_request_id
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess

ROWS = 8


@pytest.fixture
def warm(vllm: VLLMExecutor, mock: RuntimeProcess) -> VLLMExecutor:
    """An executor with as many kept connections as the tests have rows."""
    with ThreadPoolExecutor(ROWS) as pool:
        rows = [chat_row(user="latency_ms=100") for _ in range(ROWS)]
        assert all(reply.ok for reply in pool.map(lambda row: run(vllm, row), rows))
    mock.reset()
    return vllm


def begin(
    executor: VLLMExecutor, row: Row, *, timeout: float = 30, token: CancelToken | None = None
) -> SimpleQueue[Ending]:
    endings: SimpleQueue[Ending] = SimpleQueue()
    assert executor.begin(row, timeout=timeout, cancelled=token or CancelToken(), ended=endings.put)
    return endings


def reply_of(endings: SimpleQueue[Ending]) -> Reply:
    ending = endings.get(timeout=30)
    return ending if isinstance(ending, Reply) else ending()


def test_rows_are_under_way_together_and_no_thread_waits_for_them(warm: VLLMExecutor, mock: RuntimeProcess) -> None:
    before = threading.active_count()
    all_endings = [begin(warm, chat_row(user="latency_ms=300")) for _ in range(ROWS)]
    assert threading.active_count() <= before + 1
    assert all(isinstance(endings.get(timeout=30), Reply) for endings in all_endings)
    assert mock.stats()["max_in_flight"] == ROWS


def test_without_a_kept_connection_nothing_is_begun(vllm: VLLMExecutor) -> None:
    assert not vllm.begin(chat_row(), timeout=10, cancelled=CancelToken(), ended=lambda _: None)


def test_each_gets_its_own_answer(warm: VLLMExecutor) -> None:
    rows = [chat_row(user=f"latency_ms={80 - 10 * number}") for number in range(ROWS)]
    replies = [reply_of(endings) for endings in [begin(warm, row) for row in rows]]
    for row, reply in zip(rows, replies, strict=True):
        assert f"[[{row.custom_id}]]".encode() in (reply.body or b"")


def test_a_cancel_closes_their_connections(warm: VLLMExecutor, mock: RuntimeProcess) -> None:
    token = CancelToken()
    all_endings = [begin(warm, chat_row(user="hang=1"), token=token) for _ in range(ROWS)]
    mock.wait_for(lambda stats: stats["in_flight"] == ROWS)
    token.cancel()
    for endings in all_endings:
        with pytest.raises(RowCancelled):
            reply_of(endings)
    mock.wait_for(lambda stats: stats["aborted"] == ROWS and stats["in_flight"] == 0)


def test_a_cancel_after_the_answer_leaves_the_connection_to_the_next_row(
    warm: VLLMExecutor, mock: RuntimeProcess
) -> None:
    token = CancelToken()
    assert reply_of(begin(warm, chat_row(), token=token)).ok
    other = begin(warm, chat_row(user="latency_ms=300"))
    token.cancel()
    assert reply_of(other).ok
    assert mock.stats()["aborted"] == 0


def test_a_cancelled_row_is_not_begun(warm: VLLMExecutor, mock: RuntimeProcess) -> None:
    token = CancelToken()
    token.cancel()
    assert not warm.begin(chat_row(), timeout=10, cancelled=token, ended=lambda _: None)
    assert mock.stats()["requests"] == 0


def test_one_without_an_answer_in_time_times_out_and_is_cut(warm: VLLMExecutor, mock: RuntimeProcess) -> None:
    slow, quick = begin(warm, chat_row(user="hang=1"), timeout=0.3), begin(warm, chat_row(user="latency_ms=600"))
    error = reply_of(slow).error
    assert error is not None
    assert error.code is RowErrorCode.REQUEST_TIMEOUT
    mock.wait_for(lambda stats: stats["aborted"] == 1)
    assert reply_of(quick).ok


def test_close_cuts_them(warm: VLLMExecutor, mock: RuntimeProcess) -> None:
    endings = begin(warm, chat_row(user="hang=1"))
    mock.wait_for(lambda stats: stats["in_flight"] == 1)
    warm.close()
    error = reply_of(endings).error
    assert error is not None
    assert error.message == "the executor was closed"
    assert not warm.begin(chat_row(), timeout=10, cancelled=CancelToken(), ended=lambda _: None)


def test_what_is_no_good_answer_is_tried_again_by_who_may_wait(warm: VLLMExecutor, mock: RuntimeProcess) -> None:
    ending = begin(warm, chat_row(user="status=503;times=1")).get(timeout=30)
    assert not isinstance(ending, Reply)
    assert ending().ok
    assert mock.stats()["requests"] == 2
    assert warm.refusals == 1


def test_who_runs_rows_in_another_way_begins_none(mock: RuntimeProcess) -> None:
    class Accented(VLLMExecutor):
        def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
            return super().execute(row, timeout=timeout, cancelled=cancelled)

    executor = Accented(ExecutorSettings(), mock.url)
    executor.probe()
    assert not executor.begin(chat_row(), timeout=10, cancelled=CancelToken(), ended=lambda _: None)
    executor.close()


def test_a_request_that_the_server_takes_in_slowly_is_sent_to_its_end() -> None:
    body = b"x" * 250_000
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what is accepted has it too
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = HttpClient(
            f"http://127.0.0.1:{listener.getsockname()[1]}", api_key=None, connect_seconds=5, max_answer_bytes=1000
        )
        got: list[bytes] = []

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                received = connection.recv(1000)
                begun.wait(10)
                while not received.endswith(body):
                    received += connection.recv(65536)
                got.append(received)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

        begun = threading.Event()
        server = threading.Thread(target=serve)
        server.start()
        deadline = time.monotonic() + 20
        client.get("/", deadline=deadline)
        for connection in client._open:  # or the kernel takes all of it
            assert connection._sock is not None
            connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        assert client.begin(
            "/", body, request_id=new_request_id(), deadline=deadline, cancelled=CancelToken(), ended=outcomes.put
        )
        begun.set()
        outcome = outcomes.get(timeout=20)
        server.join(10)
        client.close()
    assert isinstance(outcome, Answer)
    assert outcome.body == b"[]"
    assert got[0].endswith(b"\r\n\r\n" + body)
