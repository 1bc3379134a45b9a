"""HTTP/1.1 as a client reads it: bytes from a socket in, one complete answer out.

Written by hand because of what it costs: `http.client` spends twice the CPU of all else that a row needs, and its
time-outs hold for one read, not for a whole answer (PERFORMANCE 2).
"""

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?")
_BLANKS = " \t\r\n\v\f"
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}")
_READ_BYTES = 65536
_MAX_HEAD_BYTES = 65536
_MAX_LINE_BYTES = 1_048_576
_WITHOUT_BODY = frozenset({204, 304})
_TORN = "the connection was closed before the answer was complete"


class HttpError(Exception):
    """An exchange that gave no answer. The subclasses say what a caller may do.

    Unreachable      nothing was sent: try again
    ConnectionCut    the connection ended, or spoke no HTTP, before the answer was whole: try again
    DeadlinePassed   the time is over
    AnswerTooLarge   the answer is larger than allowed: do not try again
    """


class Unreachable(HttpError):
    """No connection: refused, no route, unknown host, no TLS."""


class ConnectionCut(HttpError):
    """The answer is missing or torn."""


class DeadlinePassed(HttpError):
    """The answer was not complete in time."""


class AnswerTooLarge(HttpError):
    """The answer passed the limit."""


class MustWait(Exception):
    """How long the answer is shows only while it is read: somebody has to wait for it."""


_Head = tuple[str, int, dict[str, str]]
"""HTTP's minor version, the status and the headers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Header names are lower case; of a repeated header the last stands."""

    status: int
    headers: dict[str, str]
    body: bytes
    reusable: bool
    """The connection may carry another request."""


class AnswerReader:
    """Reads answers from one connection. A whole answer must come before `deadline` (monotonic seconds)."""

    def __init__(self, sock: socket.socket, *, max_body_bytes: int) -> None:
        self._sock = sock
        self._limit = max_body_bytes
        self._buffer = bytearray()
        self._deadline = 0.0
        self._begun: _Head | None = None
        self._size = 0

    @property
    def has_more(self) -> bool:
        """Bytes came that belong to no answer read so far."""
        return bool(self._buffer)

    def read(self, deadline: float) -> Answer:
        """Read one answer. Raises ConnectionCut, DeadlinePassed or AnswerTooLarge."""
        minor, status, headers = self._beginning(deadline)
        connection = headers.get("connection", "").lower()
        reusable = "close" not in connection and (minor == "1" or "keep-alive" in connection)
        if status in _WITHOUT_BODY:
            return Answer(status, headers, b"", reusable)
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise ConnectionCut(f"the answer has the transfer coding {coding[:100]!r}")
            return Answer(status, headers, self._chunks(), reusable)
        length = headers.get("content-length")
        if length is None:
            return Answer(status, headers, self._rest(), reusable=False)
        if not (length.isascii() and length.isdigit()):
            raise ConnectionCut(f"the answer has the length {length[:100]!r}")
        return Answer(status, headers, self._exactly(int(length)), reusable)

    def take_in(self) -> bool:
        """Take what has come on a socket that does not block. True: the answer is whole, and `read` does not wait.

        Raises as `read` does, and MustWait where only `read` can tell.
        """
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionCut(f"the connection broke: {error}") from error
        if not data:
            raise ConnectionCut(_TORN)
        self._buffer += data
        if self._begun is None:
            if self._buffer.find(b"\r\n\r\n") < 0 and len(self._buffer) <= _MAX_HEAD_BYTES:
                return False
            self._size = self._measured(self._head())
        return len(self._buffer) >= self._size

    def _measured(self, head: _Head) -> int:
        """Keep an answer's head for `read`, and say how many bytes that wants to have."""
        _, status, headers = head
        if status < 200:  # noqa: PLR2004 - 1xx announces the real answer
            _check_interim(status)
            raise MustWait
        self._begun = head
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
            raise MustWait
        size = int(length)
        return 0 if status in _WITHOUT_BODY or size > self._limit else size

    def read_lines(self, deadline: float, *, idle_seconds: float) -> tuple[int, Iterator[bytes]]:
        """Read the head of an answer before `deadline`, and give its lines as they come.

        No more than `idle_seconds` may pass without a byte. The lines raise as `read` does; they end where the answer
        ends, and what follows the last line end is a line too. Not for a connection that is used again.
        """
        _, status, headers = self._beginning(deadline)
        return status, self._lines(headers, idle_seconds)

    def _lines(self, headers: dict[str, str], idle_seconds: float) -> Iterator[bytes]:
        unfinished = bytearray()
        for piece in self._pieces(headers, idle_seconds):
            unfinished += piece
            *whole, rest = unfinished.split(b"\n")
            unfinished = bytearray(rest)
            if len(unfinished) > _MAX_LINE_BYTES:
                raise AnswerTooLarge(f"the answer has a line of more than {_MAX_LINE_BYTES} bytes")
            yield from (bytes(line) for line in whole)
        if unfinished:
            yield bytes(unfinished)

    def _pieces(self, headers: dict[str, str], idle_seconds: float) -> Iterator[bytes]:
        """Give the body's bytes as they come, in whatever pieces."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := self._chunk_size(idle_seconds):
                yield self._exactly(size)
                self._exactly(2)
            return
        left = int(headers["content-length"]) if headers.get("content-length", "").isdigit() else None
        while left is None or left > 0:
            self._deadline = time.monotonic() + idle_seconds
            if not self._buffer:
                try:
                    self._receive()
                except ConnectionCut:
                    if left is None:  # the end of the connection is the end of the answer
                        return
                    raise
            piece = bytes(self._buffer[:left])
            del self._buffer[: len(piece)]
            left = None if left is None else left - len(piece)
            yield piece

    def _beginning(self, deadline: float) -> _Head:
        self._deadline = deadline
        begun, self._begun = self._begun, None
        if begun is not None:
            return begun
        while True:
            minor, status, headers = self._head()
            if status >= 200:  # noqa: PLR2004 - 1xx announces the real answer
                return minor, status, headers
            _check_interim(status)

    def _head(self) -> _Head:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise ConnectionCut("the answer's head has no end")
            self._receive()
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        matched = _STATUS_LINE.fullmatch(first)
        if matched is None:
            raise ConnectionCut(f"the answer is no HTTP/1.1: {first[:100]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            key, text = name.lower(), value.strip(_BLANKS)
            if key == "content-length" and headers.get(key, text) != text:
                raise ConnectionCut("the answer has two lengths")
            headers[key] = text
        return matched[1], int(matched[2]), headers

    def _exactly(self, size: int) -> bytes:
        if size > self._limit:
            raise AnswerTooLarge(f"the answer has {size} bytes, more than {self._limit}")
        while len(self._buffer) < size:
            self._receive()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _rest(self) -> bytes:
        """Read to the end of the connection, where a runtime tells no length."""
        while len(self._buffer) <= self._limit:
            try:
                self._receive()
            except ConnectionCut:
                return self._exactly(len(self._buffer))
        raise AnswerTooLarge(f"the answer has more than {self._limit} bytes")

    def _chunks(self) -> bytes:
        body = bytearray()
        while size := self._chunk_size():
            if len(body) + size > self._limit:
                raise AnswerTooLarge(f"the answer has more than {self._limit} bytes")
            body += self._exactly(size)
            if self._exactly(2) != b"\r\n":
                raise ConnectionCut("the answer has a chunk of another size than it says")
        while self._line():  # trailers mean nothing to a row
            pass
        return bytes(body)

    def _chunk_size(self, idle_seconds: float | None = None) -> int:
        if idle_seconds is not None:
            self._deadline = time.monotonic() + idle_seconds
        digits = self._line().partition(b";")[0].strip()
        if not _HEX.fullmatch(digits):
            raise ConnectionCut(f"the answer has a chunk of the size {digits[:100]!r}")
        return int(digits, 16)

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise ConnectionCut("the answer has a line without end")
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _receive(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise DeadlinePassed("the answer was not complete in time")
        try:
            self._sock.settimeout(left)
            data = self._sock.recv(_READ_BYTES)
        except TimeoutError as error:
            raise DeadlinePassed("the answer was not complete in time") from error
        except OSError as error:
            raise ConnectionCut(f"the connection broke: {error}") from error
        if not data:
            raise ConnectionCut(_TORN)
        self._buffer += data


def _check_interim(status: int) -> None:
    if status == 101:  # noqa: PLR2004 - the one that no answer follows
        raise ConnectionCut("the server switches to another protocol, which nobody asked for")
