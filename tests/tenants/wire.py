"""As much HTTP as an attacker needs: a connection a call, and of the answer its status, its code and little more.

A call costs a fraction of a millisecond of processor time, so that what slows the service down is what it does itself.
"""

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

ANSWER_SECONDS = 30.0
MOST_BYTES = 64 * 1024
"""Of an answer's body no more is read."""
SMALL_BUFFER = 4096
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Answer:
    """`status` 0: the connection was closed without one; None: nothing came in time."""

    status: int | None
    body: bytes = b""

    @property
    def label(self) -> str:
        """The status, with the code of an error."""
        if not self.status:
            return "closed" if self.status == 0 else "no answer"
        with suppress(ValueError, KeyError, TypeError):
            if code := json.loads(self.body)["error"]["code"]:
                return f"{self.status} {code}"
        return str(self.status)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """Calls one server with one key."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._key = key

    async def open(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        length: int | None = None,
        deaf: bool = False,
    ) -> Connection:
        """Send a request, or its beginning, and leave the answer unread. `deaf`: have no room for one."""
        peer = socket.socket()
        if deaf:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        peer.settimeout(0)
        await asyncio.get_running_loop().sock_connect(peer, (self._host, self._port))
        reader, writer = await asyncio.open_connection(sock=peer, limit=SMALL_BUFFER)
        sent = {"host": "127.0.0.1", "connection": "close", "content-type": "application/json"}
        sent |= {"authorization": f"Bearer {self._key}"} if self._key else {}
        sent |= {"content-length": str(len(body) if length is None else length)} | dict(headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return reader, writer

    async def call(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """Make a whole call. `body` is bytes, or what becomes JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        writer = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await self.open(method, path, content, headers=headers)
                return await answer(reader)
        except TimeoutError:
            return Answer(None)
        except OSError:
            return Answer(0)
        finally:
            if writer is not None:
                writer.close()


async def answer(reader: asyncio.StreamReader) -> Answer:
    """Read an answer's status and the beginning of its body."""
    status = await begun(reader)
    body = b""
    with suppress(OSError):
        while len(body) < MOST_BYTES and (piece := await reader.read(MOST_BYTES)):
            body += piece
    return Answer(status, body)


async def begun(reader: asyncio.StreamReader) -> int:
    """Read an answer's head, and return its status; 0: there is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return 0
    return int(head.split(b" ", 2)[1])
