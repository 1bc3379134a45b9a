"""A connection that sends half a request, or nothing, is closed after a while: open files are not endless."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from app.api.http_wire import MAX_HEAD_BYTES, HttpWire

STALL_SECONDS = 0.4
PATIENCE_SECONDS = 30.0


class Impatient(HttpWire):
    stall_seconds = STALL_SECONDS
    least_bytes_per_second = 5


class Brusque(HttpWire):
    linger_seconds = STALL_SECONDS


class InLargePieces(HttpWire):
    """Hears nothing until a line ends."""

    gathered = b""

    def data_received(self, data: bytes) -> None:
        self.gathered += data
        if self.gathered.endswith(b"\r\n"):
            super().data_received(self.gathered)
            self.gathered = b""


async def reads_all(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Answer with the number of bytes that came; at once, when asked for what is refused."""
    count, more = 0, scope["path"] != "/refused"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        count, more = count + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d bytes" % count})


@contextmanager
def served_by(protocol: type[HttpWire]) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(reads_all, http=protocol, lifespan="off", log_config=None, timeout_keep_alive=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with served_by(Impatient) as found:
        yield found


def told(address: tuple[str, int], *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send pieces and no more, and give all that comes until the connection is closed."""
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break
            time.sleep(pause)
        return connection.makefile("rb").read()


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"POST / HT",),
        (b"POST / HTTP/1.1\r\nHost: x\r\n",),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345",),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\n"),
    ],
    ids=["nothing", "half a line", "half a head", "half a body", "half a second request"],
)
def test_it_is_told_so_and_closed(address: tuple[str, int], pieces: tuple[bytes, ...]) -> None:
    answer = told(address, *pieces, pause=0.1)
    head, _, body = answer[answer.rindex(b"HTTP/1.1") :].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(body)["error"]["code"] == "request_incomplete"


def test_a_head_that_comes_byte_by_byte_has_its_time_as_a_whole(address: tuple[str, int]) -> None:
    answer = told(address, *[b"GET / HTTP/1.1\r\n", *[b"x"] * 200], pause=STALL_SECONDS / 8)
    assert not answer or answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_slowly_and_goes_on_is_waited_for(address: tuple[str, int]) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"
    assert told(address, head, *[b"abc"] * 3, pause=STALL_SECONDS * 0.6).count(b"9 bytes") == 1


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(address: tuple[str, int]) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
    answer = told(address, head, *[b"x"] * 20, pause=STALL_SECONDS * 0.8)
    assert not answer or answer.startswith(b"HTTP/1.1 408 ")


def test_the_rest_of_a_body_whose_call_is_answered_is_not_waited_for() -> None:
    head = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    with served_by(Brusque) as address:
        answer = told(address, head, b"x")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"408" not in answer


def test_a_head_is_counted_from_where_it_begins() -> None:
    rest = b" " * (MAX_HEAD_BYTES * 2)
    head = b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(rest)
    with served_by(InLargePieces) as address, socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += connection.recv(4096)
        connection.sendall(rest + b"GET / HTTP/1.1\r\nHost: x\r\n")
        time.sleep(STALL_SECONDS / 4)  # so that the two halves are not read together
        connection.sendall(b"Connection: close\r\n\r\n")
        assert b"0 bytes" in connection.makefile("rb").read()
