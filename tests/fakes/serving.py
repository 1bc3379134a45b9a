"""A server of `http.server` or `socketserver` in a thread of its own, on loopback, for as long as a block lasts."""

import threading
from socketserver import TCPServer
from typing import Self


class Serving:
    """What a fake is beside what it answers."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,))

    @property
    def place(self) -> str:
        """Its address and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.place}"

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
