"""What uvicorn answers by itself, in words of ours: bytes that are no HTTP get OpenAI's envelope too."""

from http import HTTPStatus
from typing import Any

from fastapi import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api import errors
from app.api.request_ids import new_id

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers. uvicorn has no bound of its own: one caller could fill the memory."""


class HttpWire(HttpToolsProtocol):
    """uvicorn's parser of one connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = True
        self._head_bytes = self._piece_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Parse; a head that has not ended by now and is too long is refused."""
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

    def on_headers_complete(self) -> None:
        """Stop counting."""
        self._is_in_head = False
        super().on_headers_complete()

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
