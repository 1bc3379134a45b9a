"""A process that may open no more files takes no more connections: those who call are told so, and not left waiting.

asyncio looks again after a second, so the process goes on by itself once files are closed or its limit is raised.
"""

import asyncio
import errno
import json
import logging
import os
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

from app.services.readiness import out_of_files

log = logging.getLogger("gpuyard.api")

LOG_SECONDS = 60.0
"""Between two lines of the log about the same."""
SPARES = 4
CALLER_SECONDS = 0.3
"""Each caller has so long to send its request, and to take the answer: others wait for the same file."""
_PIECE = 64 * 1024
_NO_FILES = {errno.EMFILE, errno.ENFILE}


class Seldom:
    """Says when it is time for another line of the log."""

    def __init__(self) -> None:
        self._last = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether the last time that this was asked, and was so, is LOG_SECONDS ago."""
        now = time.monotonic()
        is_due = now - self._last >= LOG_SECONDS
        self._last = now if is_due else self._last
        return is_due


class SpareFiles:
    """Keeps files open that are given up to answer callers. But for `_refuse` it is used in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None) -> None:
        self._loop = loop
        self._tls = tls
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._spares: list[int] = []
        self._lent = 0
        self._complaints = Seldom()
        self._fill()

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle what asyncio says that it could not do."""
        error, listener = context.get("exception"), context.get("socket")
        if not isinstance(error, OSError) or error.errno not in _NO_FILES or listener is None:
            loop.default_exception_handler(context)
            return
        if self._complaints.is_due:
            log.error("connections are refused: %s", out_of_files() or error)
        self._fill()
        self._take(listener.fileno())

    def _fill(self) -> None:
        with suppress(OSError):
            while len(self._spares) + self._lent < SPARES:
                self._spares.append(os.dup(self._null))

    def _take(self, listener: int) -> None:
        """Refuse as many of those who wait as there are spare files."""
        while self._spares:
            os.close(self._spares.pop())
            caller = _accepted(listener)
            if caller is None:
                self._fill()
                return
            try:
                threading.Thread(target=self._refuse, args=(caller, listener), daemon=True).start()
            except RuntimeError:  # nor may it start a thread
                caller.close()
                self._fill()
                return
            self._lent += 1

    def _refuse(self, caller: socket.socket, listener: int) -> None:
        spare = None
        try:
            with suppress(OSError):
                if self._tls is not None:
                    caller = self._tls.wrap_socket(caller, server_side=True, do_handshake_on_connect=False)
                _tell(caller)
        finally:
            if caller.fileno() >= 0:
                os.dup2(self._null, caller.fileno())  # closes it, and no other thread can get its place
                spare = caller.detach()
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._take_back, spare, listener)

    def _take_back(self, spare: int | None, listener: int) -> None:
        self._lent -= 1
        if spare is not None:
            self._spares.append(spare)
        self._take(listener)


def _accepted(listener: int) -> socket.socket | None:
    """Take a connection; None: nobody waits, or another thread has opened a file meanwhile."""
    with suppress(OSError):
        waiting = socket.socket(fileno=listener)
        try:
            return waiting.accept()[0]
        finally:
            waiting.detach()
    return None


def _tell(caller: socket.socket) -> None:
    caller.settimeout(CALLER_SECONDS)
    if isinstance(caller, ssl.SSLSocket):
        caller.do_handshake()
    caller.recv(_PIECE)
    caller.sendall(_answer())
    caller.shutdown(socket.SHUT_WR)
    until = time.monotonic() + CALLER_SECONDS
    while time.monotonic() < until and caller.recv(_PIECE):
        pass  # what is not read when it is closed has the system take the answer back


def _answer() -> bytes:
    """Return an error for any call, which is an answer of `/readyz` as well."""
    what = out_of_files() or "the API may open no more files and connections"
    error = {"message": f"{what.partition(';')[0]}; nothing was changed", "type": "server_error", "param": None}
    body = json.dumps({"ready": False, "parts": {"files": what}, "error": error | {"code": "unavailable"}}).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
