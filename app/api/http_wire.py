"""What uvicorn answers by itself, in words of ours: bytes that are no HTTP get OpenAI's envelope too."""

import asyncio
import fcntl
import logging
import resource
import socket
import struct
import sys
import termios
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api import errors
from app.api.out_of_files import Seldom
from app.api.request_ids import new_id

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers. uvicorn has no bound of its own: one caller could fill the memory."""

STALL_SECONDS = 60.0
"""For a request's line and headers, for each next part of its body, and for a connection that says nothing at all.

uvicorn waits for ever: half a request in each of many sockets would take all the files that there are.
"""

LEAST_BYTES_PER_SECOND = 1024
"""A body that comes more slowly for STALL_SECONDS is not waited for: one of 100 KiB has at most two minutes."""

LINGER_SECONDS = 5.0
"""For the rest of a body whose request is answered already: time to read the answer, not to send it all."""

SPARE_FILES = 2304
"""Of the files that a process may open, connections leave so many to others, or a quarter: asyncio accepts 2048
connections in one go, and the databases and contents need theirs."""


def most_connections() -> int:
    """Return how many connections may be open, by how many files may be."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if files == resource.RLIM_INFINITY else files - min(files // 4, SPARE_FILES)


_crowded = Seldom()
_log = logging.getLogger("gpuyard.api")

UNREAD_SECONDS = 60.0
"""A caller that takes nothing of its answer for so long is cut off, and what was kept for it is freed."""


class HttpWire(HttpToolsProtocol):
    """uvicorn's parser of one connection."""

    stall_seconds = STALL_SECONDS
    least_bytes_per_second = LEAST_BYTES_PER_SECOND
    linger_seconds = LINGER_SECONDS
    unread_seconds = UNREAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = True
        self._head_bytes = self._piece_bytes = 0
        self._is_between = self._begins_piece = True
        self._is_receiving = True
        self._heard_at = 0.0
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, and not for ever."""
        super().connection_made(transport)
        # So that this is told of every byte that the caller's end does not take: below asyncio's own mark of 64 KiB a
        # connection that is to close would wait for ever.
        # And above 0: with that a TLS transport of asyncio counts as full while it is empty.
        transport.set_write_buffer_limits(high=1)
        self._wait()
        if len(self.connections) > most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        for timer in (self._timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; a head that has not ended by now and is too long is refused."""
        if not self._is_in_head:
            self._body_bytes += len(data)
        self._begins_piece = self._is_between
        self._piece_bytes = len(data)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            message = f"the request's headers are too large: at most {MAX_HEAD_BYTES} bytes"
            self._refuse(errors.envelope(431, message, code="headers_too_large"))

    def on_message_begin(self) -> None:
        """Begin to count: with the piece in which it begins, unless that piece has the end of another message too."""
        self._is_in_head, self._head_bytes = True, self._piece_bytes if self._begins_piece else 0
        self._is_between = self._begins_piece = False
        super().on_message_begin()
        self._is_receiving = True
        self._wait()

    def on_headers_complete(self) -> None:
        """Stop counting, and begin to count the body."""
        self._is_in_head, self._heard_at, self._body_bytes = False, self.loop.time(), 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The rest is the answer's business."""
        self._is_receiving, self._is_between = False, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait a moment for the rest of a body that nobody needs, so that the caller reads its answer."""
        super().on_response_complete()
        if self._is_lingering and not self.transport.is_closing():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(self.linger_seconds, self._look)

    @property
    def _is_lingering(self) -> bool:
        """Whether what comes is the body of a request that has its answer."""
        answered = self.cycle is not None and self.cycle.response_complete
        return answered and self._is_receiving and not self._is_in_head

    def _wait(self) -> None:
        self._heard_at = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.stall_seconds, self._look)

    def _look(self) -> None:
        """End a connection of which too little came; one timer a request, however many pieces it comes in."""
        self._timer = None
        if not self._is_receiving or self.transport.is_closing():
            return
        if self._is_lingering:
            self.transport.close()
            return
        is_our_wait = self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue)
        if is_our_wait or self._body_bytes >= self.stall_seconds * self.least_bytes_per_second:
            self._heard_at, self._body_bytes = self.loop.time(), 0
        left = self._heard_at + self.stall_seconds - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.transport.close()
        else:
            message = f"the rest of the request did not come within {self.stall_seconds:g} s"
            if not self._is_in_head:
                message += f", or at less than {self.least_bytes_per_second} bytes a second"
            self._refuse(errors.envelope(408, message, code="request_incomplete"))

    def _make_room(self) -> None:
        """Close the twentieth of all connections that has waited longest for its caller; if all are calls, this one."""
        waiting = [other for other in self.connections if isinstance(other, HttpWire) and other.waits_for_caller]
        waiting.sort(key=lambda other: other.waiting_since)
        closed = waiting[: max(1, len(self.connections) // 20)] or [self]
        if _crowded.is_due:
            what = "those that waited longest for their callers are closed"
            _log.warning("as many connections as this process has files for (ulimit -n): %s", what)
        for other in closed:
            other.transport.abort()

    @property
    def waits_for_caller(self) -> bool:
        """Whether nothing is being done for it: it is idle, or half a request has come."""
        is_open = self.transport is not None and not self.transport.is_closing()
        return is_open and (self._is_receiving or self.cycle is None or self.cycle.response_complete)

    @property
    def waiting_since(self) -> float:
        """When its request began, or its body, or the minute of the body that goes on."""
        return self._heard_at

    def pause_writing(self) -> None:
        """Wait for the caller to read, and not for ever."""
        super().pause_writing()
        self._unread_bytes = self._unread()
        self._unread_timer = self.loop.call_later(self.unread_seconds, self._look_at_unread)

    def resume_writing(self) -> None:
        """Wait no more: the caller has read."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        super().resume_writing()

    def _look_at_unread(self) -> None:
        """Cut off a caller that has read nothing since the last look; to close would be to wait until it reads."""
        left = self._unread()
        if left < self._unread_bytes:
            self._unread_bytes = left
            self._unread_timer = self.loop.call_later(self.unread_seconds, self._look_at_unread)
            return
        with suppress(OSError):  # else the system keeps what it holds, and offers it for minutes more
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _unread(self) -> int:
        """Count the bytes that the caller's end has not taken: ours, and the system's where it tells.

        The system takes more of ours only when a third of its own, which may be megabytes, has gone.
        """
        held = 0
        with suppress(OSError):
            held = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        return held + self.transport.get_write_buffer_size()

    @property
    def _socket(self) -> socket.socket:
        found: socket.socket = self.transport.get_extra_info("socket")
        return found

    def send_400_response(self, msg: str) -> None:
        """Answer to what the parser refused."""
        self._refuse(errors.envelope(400, f"This is no HTTP request that we can read: {msg}", code="invalid_http"))

    def _refuse(self, answer: Response) -> None:
        status = HTTPStatus(answer.status_code)
        head = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        headers = [*answer.raw_headers, (b"x-request-id", new_id().encode()), (b"connection", b"close")]
        head += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(answer.body))
        self.transport.close()
