"""One HTTP server, many threads: kept connections, one answer or one typed error an exchange, cancel from outside.

A thread that has a row takes the connection used last and gives it back after the answer, so there are as many
connections as rows in flight, and no lock or scan on the way (PERFORMANCE 2).
"""

import contextlib
import re
import select
import socket
import ssl
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from executors.cancellation import CancelToken
from executors.http_wire import Answer, AnswerReader, ConnectionCut, DeadlinePassed, HttpError, Unreachable

_IDLE_SECONDS = 4.0
"""A connection idle for longer is not used again. Uvicorn, and so vLLM, closes its own after 5."""

_ONE_WRITE_BYTES = 262_144
"""Up to here head and body go out in one write; beyond, copying costs more than the second write."""

_PATH = re.compile(r"/[!-~]*")
_HEADER_VALUE = re.compile(r"[!-~]*")


class ClientClosed(HttpError):
    """The client was closed by its owner."""


class HttpClient:
    """Talks to one base URL, given with or without `/v1`. Use from any number of threads."""

    def __init__(self, url: str, *, api_key: str | None, connect_seconds: float, max_answer_bytes: int) -> None:
        """Prepare; connect later. Raises ValueError for a URL or key that cannot be used."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise ValueError(f"{url!r} is no URL like http://127.0.0.1:8000")
        if api_key is not None and not _HEADER_VALUE.fullmatch(api_key):
            raise ValueError("the runtime's API key has characters that a header cannot carry")
        self._address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._connect_seconds = connect_seconds
        self._max_answer_bytes = max_answer_bytes
        authorization = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._headers = f"Host: {parts.netloc}\r\nAccept: application/json\r\n{authorization}"
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._closed = False
        self.breaks = 0
        """How often the server ended a connection or was not there: another one may listen there now."""

    @property
    def in_use(self) -> int:
        """Exchanges under way, about."""
        return len(self._open) - len(self._idle)

    def get(self, path: str, *, deadline: float) -> Answer:
        """Ask for a path, until `deadline` (monotonic seconds). Raises HttpError."""
        return self._exchange(f"GET {self._path(path)} HTTP/1.1\r\n{self._headers}\r\n", b"", deadline, CancelToken())

    def post(self, path: str, body: bytes, *, request_id: uuid.UUID, deadline: float, cancelled: CancelToken) -> Answer:
        """Send a JSON body as it stands. Raises HttpError, or RowCancelled once the connection is cut."""
        head = (
            f"POST {self._path(path)} HTTP/1.1\r\n{self._headers}X-Request-Id: {request_id}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return self._exchange(head, body, deadline, cancelled)

    @contextmanager
    def lines(
        self, path: str, body: bytes, *, idle_seconds: float, cancelled: CancelToken
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Send a JSON body and give the status and the lines of the answer as they come, on a connection of its own.

        Raises HttpError, and so does the iteration: DeadlinePassed when nothing comes for `idle_seconds`. Raises
        RowCancelled once the connection is cut. Leaving the block closes the connection.
        """
        head = (
            f"POST {self._path(path)} HTTP/1.1\r\n{self._headers}Connection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection = self._new()
        try:
            with cancelled.watching(connection.abort):
                yield connection.lines(head.encode("ascii"), body, idle_seconds)
        except HttpError:
            cancelled.raise_if_cancelled()
            if self._closed:
                raise ClientClosed("the executor was closed") from None
            raise
        finally:
            self._drop(connection)

    def close(self) -> None:
        """Cut every connection, those in use included."""
        self._closed = True
        for connection in list(self._open):
            connection.abort()
        with contextlib.suppress(IndexError):
            while True:
                self._drop(self._idle.pop())

    def _path(self, path: str) -> str:
        if not _PATH.fullmatch(path):
            raise ValueError(f"not a path: {path[:200]!r}")
        return self._prefix + path

    def _exchange(self, head: str, body: bytes, deadline: float, cancelled: CancelToken) -> Answer:
        connection = self._take()
        was_cut = False
        while True:
            reused = connection.used
            try:
                with cancelled.watching(connection.abort):
                    answer = connection.exchange(head.encode("ascii"), body, deadline)
            except ConnectionCut:
                self._drop(connection)
                self.breaks += 1
                cancelled.raise_if_cancelled()
                if self._closed:
                    raise ClientClosed("the executor was closed") from None
                if not reused:
                    raise
                # The server ended a kept connection at the very moment we used it: that says nothing about the row.
                connection, was_cut = self._new(), True
            except BaseException as error:  # whatever it was, the connection is in an unknown state
                self._drop(connection)
                self.breaks += isinstance(error, Unreachable)
                cancelled.raise_if_cancelled()
                if was_cut and isinstance(error, Unreachable):
                    # Unless nobody is there any more: then the row may well have been what ended the server.
                    raise ConnectionCut(f"the server ended with the row: {error}") from error
                raise
            else:
                self._give_back(connection, reusable=answer.reusable)
                return answer

    def _take(self) -> "_Connection":
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                is_fresh = connection.is_fresh(time.monotonic())
                if is_fresh and connection.is_silent():
                    return connection
                self._drop(connection)
                self.breaks += is_fresh
        return self._new()

    def _new(self) -> "_Connection":
        if self._closed:
            raise ClientClosed("the executor was closed")
        connection = _Connection(self._address, self._tls, self._connect_seconds, self._max_answer_bytes)
        self._open.add(connection)
        return connection

    def _give_back(self, connection: "_Connection", *, reusable: bool) -> None:
        if not reusable or connection.spent or self._closed:
            self._drop(connection)
            return
        self._idle.append(connection)
        with contextlib.suppress(IndexError):  # the oldest rest at the left end
            if not self._idle[0].is_fresh(time.monotonic()):
                self._drop(self._idle.popleft())

    def _drop(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        connection.close()


class _Connection:
    """One socket, connected at its first exchange. `abort` may come from any thread at any moment."""

    def __init__(
        self, address: tuple[str, int], tls: ssl.SSLContext | None, connect_seconds: float, max_answer_bytes: int
    ) -> None:
        self._address = address
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._max_answer_bytes = max_answer_bytes
        self._sock: socket.socket | None = None
        self._reader: AnswerReader | None = None
        self._poll = select.poll()
        self._used_at = 0.0
        self.used = False
        self.spent = False  # cut, or refused in mid-request: not to be used again

    def is_fresh(self, now: float) -> bool:
        """Tell whether the server can be expected to have kept its end."""
        return now - self._used_at < _IDLE_SECONDS

    def is_silent(self) -> bool:
        """Tell whether nothing came since the last answer: neither an end nor bytes that nobody asked for.

        Such bytes would be read as the answer to the next row, and each row's answer given to the one after it.
        """
        return self._reader is not None and not self._reader.has_more and not self._poll.poll(0)

    def exchange(self, head: bytes, body: bytes, deadline: float) -> Answer:
        """Send one request and read its answer."""
        answer = self._send(head, body, deadline).read(deadline)
        self.used = True
        self._used_at = time.monotonic()
        return answer

    def lines(self, head: bytes, body: bytes, idle_seconds: float) -> tuple[int, Iterator[bytes]]:
        """Send one request; give the status and the answer's lines as they come."""
        deadline = time.monotonic() + idle_seconds
        return self._send(head, body, deadline).read_lines(deadline, idle_seconds=idle_seconds)

    def _send(self, head: bytes, body: bytes, deadline: float) -> AnswerReader:
        if self._sock is None or self._reader is None:
            self._sock, self._reader = self._connect(deadline)
            self._poll.register(self._sock, select.POLLIN)
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlinePassed("the time was over before the request was sent")
        try:
            self._sock.settimeout(left)
            if len(body) <= _ONE_WRITE_BYTES:
                self._sock.sendall(head + body)
            else:
                self._sock.sendall(head)
                self._sock.sendall(body)
        except TimeoutError as error:
            raise DeadlinePassed("the request could not be sent in time") from error
        except OSError:
            # A server that refuses a body closes while we still send: its answer may be there to read.
            self.spent = True
        return self._reader

    def _connect(self, deadline: float) -> tuple[socket.socket, AnswerReader]:
        until = min(deadline, time.monotonic() + self._connect_seconds)
        host, port = self._address
        problem: OSError = TimeoutError("no time left")
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                sock = self._sock = socket.socket(family, kind, protocol)
                if self.spent:
                    break
                try:
                    sock.settimeout(max(0.001, until - time.monotonic()))
                    sock.connect(address)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if self._tls:
                        sock = self._sock = self._tls.wrap_socket(sock, server_hostname=host)
                except OSError as error:
                    sock.close()
                    problem = error
                else:
                    return sock, AnswerReader(sock, max_body_bytes=self._max_answer_bytes)
        except OSError as error:  # the name cannot be looked up
            problem = error
        raise Unreachable(f"{host}:{port}: {problem}") from problem

    def abort(self) -> None:
        """Cut the connection: whoever waits on it gets an error at once."""
        self.spent = True
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                # The plain socket's, because an SSLSocket's would drop its session under the reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket."""
        if self._sock is not None:
            self._sock.close()
