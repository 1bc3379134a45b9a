"""A proxy between workers and the API that holds calls or answers back: what a network does at the worst moment.

`breaks` has it answer 500 itself, as an API does that meets a bug over this very call.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

import httpx

HELD_SECONDS = 120.0
HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "host", "keep-alive", "date", "server"}


class Gateway:
    """Routes are the last words of paths. What is held stays so until `let_through`."""

    def __init__(self, upstream: str) -> None:
        self.client = httpx.Client(base_url=upstream, timeout=60)
        self.arrived: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        """Calls that the API has answered, whether the caller got to know of it or not."""
        self.breaks: Callable[[str, bytes], bool] = lambda _route, _body: False
        self.broke: Counter[str] = Counter()
        self._held: dict[str, bool] = {}
        self._free = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.gateway = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def hold(self, *routes: str, after_the_answer: bool = False) -> None:
        """Keep calls of these routes from the API, or their answers from whoever asked."""
        self._free.clear()
        self._held = dict.fromkeys(routes, after_the_answer)

    def let_through(self) -> None:
        """Hold nothing any more, and close on those that wait: they ask again, or are dead."""
        self._held = {}
        self._free.set()

    def forget(self) -> None:
        """Hold nothing, and count from zero."""
        self.let_through()
        self.arrived.clear()
        self.answered.clear()

    def waits(self, route: str, *, after_the_answer: bool) -> bool:
        """Wait while calls of a route are held here; tells whether it had to."""
        if self._held.get(route) is not after_the_answer:
            return False
        self._free.wait(HELD_SECONDS)
        return True

    def _close(self) -> None:
        self.let_through()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.client.close()


@contextmanager
def gateway(upstream: str) -> Iterator[Gateway]:
    """Serve while the block runs."""
    found = Gateway(upstream)
    found._thread.start()
    try:
        yield found
    finally:
        found._close()


class _Server(ThreadingHTTPServer):
    gateway: Gateway
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def _pass(self) -> None:
        ours = self.server.gateway
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        route = self.path.partition("?")[0].rpartition("/")[2]
        ours.arrived[route] += 1
        if ours.waits(route, after_the_answer=False):
            self.close_connection = True
            return
        if ours.breaks(route, body):
            ours.broke[route] += 1
            self._answer(500, b'{"error": {"message": "a bug", "type": "server_error", "code": "internal_error"}}')
            return
        headers = [(name, value) for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP]
        try:
            answer = ours.client.request(self.command, self.path, content=body, headers=headers)
        except httpx.TransportError:
            self.close_connection = True
            return
        ours.answered[route] += 1
        if ours.waits(route, after_the_answer=True):
            self.close_connection = True
            return
        kept = {n: v for n, v in answer.headers.items() if n.lower() not in HOP_BY_HOP | {"content-encoding"}}
        self._answer(answer.status_code, answer.content, kept)

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
