"""A company's HTTP proxy on a real socket: it leads every name to one address, and remembers what it was asked for."""

import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.fakes.serving import Serving

PIECE_BYTES = 64 * 1024
HOP = {"connection", "proxy-connection", "transfer-encoding", "content-length"}


class HttpProxy(Serving):
    """`asked`: each call's first words; `to`: the port of this machine where all of them end."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.asked: list[str] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.proxy = self  # type: ignore[attr-defined]
        super().__init__(server)


class _Handler(BaseHTTPRequestHandler):
    @property
    def _proxy(self) -> HttpProxy:
        proxy: HttpProxy = self.server.proxy  # type: ignore[attr-defined]
        proxy.asked.append(f"{self.command} {self.path}")
        return proxy

    def do_CONNECT(self) -> None:
        """Be a tunnel."""
        with socket.create_connection(("127.0.0.1", self._proxy.to)) as there:
            self.send_response_only(200)
            self.end_headers()
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()

    def _forward(self) -> None:
        asked = urlsplit(self.path)
        there = HTTPConnection("127.0.0.1", self._proxy.to)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        there.request(self.command, asked.path + (f"?{asked.query}" if asked.query else ""), body, kept)
        answer = there.getresponse()
        content = answer.read()
        there.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _forward  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE_BYTES):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
