"""One HTTP server, many threads: what a kept connection, an odd server and an odd URL do."""

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

import pytest

from executors.cancellation import CancelToken, RowCancelled
from executors.http_client import ClientClosed, HttpClient
from executors.http_loop import Outcome
from executors.http_wire import (
    Answer,
    AnswerReader,
    AnswerTooLarge,
    ConnectionCut,
    DeadlinePassed,
    MustWait,
    Unreachable,
)
from executors.request_ids import new_request_id
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import chat_row, run
from tests.fakes.runtime_process import RuntimeProcess

PATH = "/v1/chat/completions"
CERTIFICATE = Path(__file__).parents[1] / "fakes" / "tls" / "cert.pem"


SOON = 20.0
"""Seconds, on a machine that stalls for some of them; what is waited for otherwise takes a minute."""


def client_of(url: str, *, api_key: str | None = None, connect_seconds: float = 5) -> HttpClient:
    return HttpClient(url, api_key=api_key, connect_seconds=connect_seconds, max_answer_bytes=1000)


Line = tuple[socket.socket, AnswerReader, socket.socket]
Read = Callable[[Line, bytes], Answer]


class Post(Protocol):
    """One way to send a row; gives the answer's status."""

    def __call__(
        self, client: HttpClient, body: bytes, *, seconds: float = 10, cancelled: CancelToken | None = None
    ) -> int: ...


def posted(client: HttpClient, body: bytes, *, seconds: float = 10, cancelled: CancelToken | None = None) -> int:
    return client.post(
        PATH,
        body,
        request_id=new_request_id(),
        deadline=time.monotonic() + seconds,
        cancelled=cancelled or CancelToken(),
    ).status


def begun(client: HttpClient, body: bytes, *, seconds: float = 10, cancelled: CancelToken | None = None) -> int:
    """Begin it, or post it where a row cannot be begun; whatever needs a thread that may wait has this one."""
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    token = cancelled or CancelToken()
    deadline = time.monotonic() + seconds
    if not client.begin(
        PATH, body, request_id=new_request_id(), deadline=deadline, cancelled=token, ended=outcomes.put
    ):
        return posted(client, body, seconds=seconds, cancelled=cancelled)
    outcome = outcomes.get(timeout=30)
    return (outcome if isinstance(outcome, Answer) else outcome()).status


@pytest.fixture(params=[posted, begun])
def post(request: pytest.FixtureRequest) -> Post:
    way: Post = request.param
    return way


def test_rows_after_each_other_share_one_connection(vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
    before = mock.stats()["connections"]
    for _ in range(20):
        assert run(vllm, chat_row()).ok
    assert mock.stats()["connections"] == before + 2  # one for the rows, one for these stats


def test_a_kept_connection_that_the_server_ended_is_replaced_without_a_word(post: Post, mock: RuntimeProcess) -> None:
    client = client_of(mock.url)
    for _ in range(3):
        assert post(client, chat_row(user="then_close=1").body) == 200
    assert mock.stats()["requests"] == 3
    client.close()


def test_a_kept_connection_of_a_dead_server_is_not_mistaken_for_a_row_that_kills_it(
    post: Post, mock: RuntimeProcess
) -> None:
    client = client_of(mock.url)
    assert post(client, chat_row().body) == 200
    mock.kill()
    with pytest.raises(Unreachable):
        post(client, chat_row().body)
    client.close()


class Babbler:
    """A server that sends more than it was asked for on its first connection: at once, or when it is told to."""

    def __init__(self, *, at_once: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._at_once = at_once
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for number in range(2):
            connection, _ = self._listener.accept()
            self._connections.append(connection)
            connection.recv(65536)
            connection.sendall(self._answer(200) + (self._answer(404) if self._at_once and number == 0 else b""))

    @staticmethod
    def _answer(status: int) -> bytes:
        return b"HTTP/1.1 %d OK\r\nContent-Length: 2\r\n\r\n{}" % status

    def babble(self) -> None:
        self._connections[0].sendall(self._answer(404))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # where only one connection came
            socket.create_connection(self._listener.getsockname()).close()
        self._thread.join(5)
        for sock in (self._listener, *self._connections):
            sock.close()


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_server_sends_unasked_is_no_rows_answer(post: Post, *, at_once: bool) -> None:
    server = Babbler(at_once=at_once)
    client = client_of(server.url)
    try:
        assert post(client, b"{}", seconds=5) == 200
        if not at_once:
            server.babble()
        assert post(client, b"{}", seconds=5) == 200
    finally:
        client.close()
        server.close()


def test_the_body_goes_out_as_it_stands_with_key_and_a_fresh_request_id(mock: RuntimeProcess) -> None:
    executor = VLLMExecutor(ExecutorSettings(api_key="sk-secret"), f"{mock.url}/v1/")
    row = chat_row("ü \u2028", temperature=1.10, unknown_field=[])
    ids = set()
    for _ in range(2):
        assert run(executor, row).ok
        seen = mock.stats()
        assert seen["body"].encode() == row.body
        assert seen["headers"]["authorization"] == "Bearer sk-secret"
        ids.add(uuid.UUID(seen["headers"]["x-request-id"]))
    assert len(ids) == 2
    assert "sk-secret" not in repr(executor.settings)
    executor.close()


def test_a_large_body_arrives_whole(vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
    assert run(vllm, chat_row("x" * 5_000_000), timeout=30).ok


def test_close_cuts_the_rows_in_flight(vllm: VLLMExecutor, mock: RuntimeProcess) -> None:
    replies = []
    thread = threading.Thread(target=lambda: replies.append(run(vllm, chat_row(user="hang=1"), timeout=60)))
    thread.start()
    mock.wait_for(lambda stats: stats["in_flight"] == 1)
    vllm.close()
    thread.join(5)
    assert [str(reply.error and reply.error.message) for reply in replies] == ["the executor was closed"]
    mock.wait_for(lambda stats: stats["aborted"] == 1)


def test_tls_is_checked_and_a_cancel_cuts_it_too(
    post: Post, runtime_server: Callable[..., RuntimeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = runtime_server("--tls").url
    distrustful = client_of(url)
    with pytest.raises(Unreachable, match="certificate verify failed"):
        post(distrustful, b"{}")
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    client = client_of(url)
    for _ in range(2):
        assert post(client, chat_row().body) == 200
    token = CancelToken()
    timer = threading.Timer(0.2, token.cancel)
    timer.start()
    start = time.monotonic()
    with pytest.raises(RowCancelled):
        post(client, chat_row(user="hang=1").body, seconds=60, cancelled=token)
    assert time.monotonic() - start < SOON
    client.close()


def test_a_cancel_ends_an_attempt_to_connect(post: Post) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        fillers = []
        for _ in range(3):  # a full backlog: the next connection gets no answer
            fillers.append(socket.socket())
            fillers[-1].settimeout(0)
            fillers[-1].connect_ex(address)
        client = client_of(f"http://127.0.0.1:{address[1]}", connect_seconds=60)
        token = CancelToken()
        timer = threading.Timer(0.2, token.cancel)
        timer.start()
        start = time.monotonic()
        with pytest.raises(RowCancelled):
            post(client, b"{}", seconds=60, cancelled=token)
        assert time.monotonic() - start < SOON
        client.close()
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://u:p@h", "http://h:99999", "http://[::1"])
def test_a_url_that_cannot_be_used_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        client_of(url)


def test_a_key_or_path_cannot_smuggle_a_header(mock: RuntimeProcess) -> None:
    with pytest.raises(ValueError, match="key"):
        client_of(mock.url, api_key="a\r\nX: y")
    client = client_of(mock.url)
    with pytest.raises(ValueError, match="path"):
        client.get("/v1/models HTTP/1.1\r\nX: y", deadline=time.monotonic() + 1)
    client.close()


def test_a_closed_client_refuses(post: Post, mock: RuntimeProcess) -> None:
    client = client_of(mock.url)
    client.close()
    with pytest.raises(ClientClosed):
        post(client, b"{}")


@pytest.fixture
def line() -> Iterator[Line]:
    """A server's end, and a reader at the other one with its socket."""
    server, ours = socket.socketpair()
    yield server, AnswerReader(ours, max_body_bytes=1000), ours
    server.close()
    ours.close()


def waited_for(line: Line, raw: bytes) -> Answer:
    server, reader, _ = line
    server.sendall(raw)
    server.shutdown(socket.SHUT_WR)
    return reader.read(time.monotonic() + 5)


def as_it_comes(line: Line, raw: bytes, *, piece: int = 1) -> Answer:
    """Take in a few bytes at a time, and wait only where that must be."""
    server, reader, ours = line
    ours.settimeout(0)
    assert not reader.take_in()
    is_whole, sent = False, 0
    try:
        while not is_whole:
            sending, sent = raw[sent : sent + piece], sent + piece
            if sending:
                server.sendall(sending)
            else:
                server.shutdown(socket.SHUT_WR)
            is_whole = reader.take_in()
    except MustWait:
        server.sendall(raw[sent:])
        server.shutdown(socket.SHUT_WR)
    return reader.read(time.monotonic() + 5)


def in_one_piece(line: Line, raw: bytes) -> Answer:
    return as_it_comes(line, raw, piece=len(raw) or 1)


every_way = pytest.mark.parametrize("read", [waited_for, as_it_comes, in_one_piece])


@every_way
@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\nh\r\n1\r\ni\r\n0\r\nT: 1\r\n\r\n", b"hi"),
        (b"HTTP/1.0 200 OK\r\n\r\nhi", b"hi"),
    ],
)
def test_every_form_of_an_answer_is_read(line: Line, read: Read, raw: bytes, body: bytes) -> None:
    assert read(line, raw).body == body


@every_way
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nhi",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
)
def test_a_torn_or_senseless_answer_is_a_cut(line: Line, read: Read, raw: bytes) -> None:
    with pytest.raises(ConnectionCut):
        read(line, raw)


@every_way
@pytest.mark.parametrize(
    "head",
    [b"Content-Length: 1001\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", b"\r\n" + b"x" * 1001],
)
def test_an_answer_beyond_the_limit_is_not_read(line: Line, read: Read, head: bytes) -> None:
    with pytest.raises(AnswerTooLarge):
        read(line, b"HTTP/1.1 200 OK\r\n" + head)


def test_silence_is_a_time_out(line: Line) -> None:
    _, reader, _ = line
    with pytest.raises(DeadlinePassed):
        reader.read(time.monotonic() + 0.05)
