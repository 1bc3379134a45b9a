"""A SOCKS5 proxy (RFC 1928) on a real socket, as `ssh -D` is one: it leads every name to one port of this machine."""

import socket
import socketserver
import struct
import threading

from tests.fakes.http_proxy import pump
from tests.fakes.serving import Serving

DOMAIN, NO_LOGIN, CONNECT = 3, 0, 1


class SocksProxy(Serving):
    """`asked`: each `host:port` that somebody wanted to reach; `to`: the port where all of them end."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.asked: list[str] = []
        server = _Server(("127.0.0.1", 0), _Handler)
        server.proxy = self
        super().__init__(server)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    proxy: SocksProxy


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        _, methods = struct.unpack("!BB", self.rfile.read(2))
        self.rfile.read(methods)
        self.wfile.write(bytes([5, NO_LOGIN]))
        _, command, _, kind = struct.unpack("!BBBB", self.rfile.read(4))
        assert (command, kind) == (CONNECT, DOMAIN), "the name is the proxy's to look up"
        host = self.rfile.read(self.rfile.read(1)[0]).decode()
        (port,) = struct.unpack("!H", self.rfile.read(2))
        self.server.proxy.asked.append(f"{host}:{port}")
        with socket.create_connection(("127.0.0.1", self.server.proxy.to)) as there:
            self.wfile.write(bytes([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()
