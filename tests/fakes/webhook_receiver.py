"""A receiver of webhooks on a real socket: it keeps what came and answers as a test wants."""

import ssl
import threading
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

TLS = Path(__file__).parent / "tls"


@dataclass(frozen=True)
class Received:
    """One call, whatever it was answered with."""

    path: str
    headers: dict[str, str]
    body: bytes


class WebhookReceiver:
    """`answers(500, 200)` queues statuses, the last one for good; while `released` is clear nothing is answered."""

    def __init__(self, *, tls: bool = False) -> None:
        self.received: list[Received] = []
        self.location: str | None = None
        self.released = threading.Event()
        self.released.set()
        self._statuses = deque([200])
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.receiver = self  # type: ignore[attr-defined]
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https" if tls else "http"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    def answers(self, *statuses: int) -> None:
        self._statuses = deque(statuses)

    def answer(self, received: Received) -> int:
        self.received.append(received)
        self.released.wait(30)
        return self._statuses.popleft() if len(self._statuses) > 1 else self._statuses[0]

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver: WebhookReceiver = self.server.receiver  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status = receiver.answer(Received(self.path, headers, body))
        self.send_response(status)
        if receiver.location is not None:
            self.send_header("location", receiver.location)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        pass
