"""What uvicorn answers by itself, in words of ours: bytes that are no HTTP get OpenAI's envelope too."""

import asyncio
import fcntl
import socket
import struct
import termios
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api import errors
from app.api.request_ids import new_id

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers. uvicorn has no bound of its own: one caller could fill the memory."""

STALL_SECONDS = 60.0
"""For a request's line and headers, for each next piece of its body, and for a connection that says nothing at all.

uvicorn waits for ever: who opens sockets and sends half a request in each would take all the files that there are.
"""

UNREAD_SECONDS = 60.0
"""A caller that takes nothing of its answer for so long is cut off, and what was kept for it is freed."""


class HttpWire(HttpToolsProtocol):
    """uvicorn's parser of one connection."""

    stall_seconds = STALL_SECONDS
    unread_seconds = UNREAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = True
        self._head_bytes = self._piece_bytes = 0
        self._is_receiving = True
        self._heard_at = 0.0
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

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        for timer in (self._timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; a head that has not ended by now and is too long is refused."""
        if not self._is_in_head:  # a head has its time as a whole: else one byte a minute would do
            self._heard_at = self.loop.time()
        self._piece_bytes = len(data)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            message = f"the request's headers are too large: at most {MAX_HEAD_BYTES} bytes"
            self._refuse(errors.envelope(431, message, code="headers_too_large"))

    def on_message_begin(self) -> None:
        """Begin to count, with the piece in which it begins."""
        self._is_in_head, self._head_bytes = True, self._piece_bytes
        super().on_message_begin()
        self._is_receiving = True
        self._wait()

    def on_headers_complete(self) -> None:
        """Stop counting."""
        self._is_in_head, self._heard_at = False, self.loop.time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The rest is the answer's business."""
        self._is_receiving = False
        super().on_message_complete()

    def _wait(self) -> None:
        self._heard_at = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.stall_seconds, self._look)

    def _look(self) -> None:
        """End a connection of which nothing more came; one timer a request, however many pieces it comes in."""
        self._timer = None
        if not self._is_receiving or self.transport.is_closing():
            return
        if self.flow.read_paused or (self.cycle is not None and self.cycle.waiting_for_100_continue):
            self._heard_at = self.loop.time()  # it is we who are not ready for more
        left = self._heard_at + self.stall_seconds - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.transport.close()
        else:
            message = f"the rest of the request did not come within {self.stall_seconds:g} s"
            self._refuse(errors.envelope(408, message, code="request_incomplete"))

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
