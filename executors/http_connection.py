"""One kept connection to an HTTP server: an exchange that is waited for, or one that is begun and looked after."""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator

from executors.content_encodings import decoded
from executors.http_wire import Answer, AnswerReader, DeadlinePassed, Unreachable

IDLE_SECONDS = 4.0
"""A connection idle for longer is not used again. Uvicorn, and so vLLM, closes its own after 5."""

ONE_WRITE_BYTES = 262_144
"""Up to here head and body go out in one write; beyond, copying costs more than the second write."""


class Connection:
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
        self._unsent = b""
        self._used_at = 0.0
        self.used = False
        self.is_watched = False
        self.spent = False  # cut, or refused in mid-request: not to be used again

    def is_fresh(self, now: float) -> bool:
        """Tell whether the server can be expected to have kept its end."""
        return now - self._used_at < IDLE_SECONDS

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
        return decoded(answer, self._max_answer_bytes)

    # --- an exchange that nobody waits for, once connected

    def fileno(self) -> int:
        """The socket's number."""
        return self._sock.fileno() if self._sock is not None else -1

    @property
    def has_unsent(self) -> bool:
        """Part of the request waits until the server takes it."""
        return bool(self._unsent)

    def begin(self, request: bytes) -> None:
        """Send a request as far as that goes without waiting; `go_on` whenever something can be read or sent."""
        if self._sock is not None and self._sock.gettimeout() != 0.0:
            self._sock.settimeout(0.0)
        self._unsent = request
        self._send_on()

    def go_on(self, deadline: float) -> Answer | None:
        """Send and read what can be without waiting: the answer once it is whole.

        Raises HttpError, or MustWait when `finish` must be called.
        """
        if self._unsent:
            self._send_on()
        if self._reader is None:
            raise ValueError("nothing was begun")
        return self.finish(deadline) if self._reader.take_in() else None

    def finish(self, deadline: float) -> Answer:
        """Read the answer to what was begun, and wait for it."""
        if self._unsent:  # it was answered before it was all sent
            self._unsent, self.spent = b"", True
        if self._reader is None:
            raise ValueError("nothing was begun")
        answer = self._reader.read(deadline)
        self._used_at = time.monotonic()
        return decoded(answer, self._max_answer_bytes)

    def _send_on(self) -> None:
        if self._sock is None:
            return
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            # As in `_send`: what it said before it closed may be there to read.
            self._unsent, self.spent = b"", True

    # --- an exchange that somebody waits for

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
            if len(body) <= ONE_WRITE_BYTES:
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
