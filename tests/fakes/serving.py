"""A server of `http.server` in a thread of its own, on loopback, for as long as a block lasts."""

import threading
from http.server import HTTPServer
from typing import Self


class Serving:
    """What a fake is beside what it answers."""

    def __init__(self, server: HTTPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
