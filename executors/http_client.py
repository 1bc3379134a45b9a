"""One HTTP server, many threads: kept connections, one answer or one typed error an exchange, cancel from outside.

Who has a row takes the connection used last and gives it back after the answer, so there are as many connections as
rows in flight, and no scan on the way (PERFORMANCE 2). A row is waited for (`post`), or begun (`begin`): then the
client's own thread tells of its end.
"""

import contextlib
import re
import select
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urljoin, urlsplit, urlunsplit

from executors.cancellation import CancelToken, RowCancelled
from executors.http_connection import ONE_WRITE_BYTES, Connection
from executors.http_loop import Exchange, ExchangeLoop, Outcome
from executors.http_wire import Answer, ConnectionCut, HttpError, MustWait, Unreachable

_PATH = re.compile(r"/[!-~]*")
_HEADER_VALUE = re.compile(r"[!-~]*")
_PORTS = {"http": 80, "https": 443}
_MOVED = frozenset({307, 308})
_MAX_MOVES = 5
_MAX_STARTS = 100


class ClientClosed(HttpError):
    """The client was closed by its owner."""


class HttpClient:
    """Talks to one base URL, given with or without `/v1`. Use from any number of threads."""

    def __init__(self, url: str, *, api_key: str | None, connect_seconds: float, max_answer_bytes: int) -> None:
        """Prepare; connect later. Raises ValueError for a URL or key that cannot be used."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise ValueError(f"{url!r} is no URL like http://127.0.0.1:8000")
        if api_key is not None and not _HEADER_VALUE.fullmatch(api_key):
            raise ValueError("the runtime's API key has characters that a header cannot carry")
        self._address = (parts.hostname, parts.port or _PORTS[parts.scheme])
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._base = f"{parts.scheme}://{parts.netloc}/"
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._connect_seconds = connect_seconds
        self._max_answer_bytes = max_answer_bytes
        authorization = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._headers = (
            f"Host: {parts.netloc}\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n{authorization}"
        )
        self._origin = (parts.scheme, *self._address)
        self._starts: dict[str, bytes] = {}  # of a request's head, by path
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._closed = False
        self._loop = ExchangeLoop(self._ended) if self._tls is None and hasattr(select, "epoll") else None
        self.breaks = 0
        """How often the server ended a connection or was not there: another one may listen there now."""

    @property
    def in_use(self) -> int:
        """Exchanges under way, about."""
        return len(self._open) - len(self._idle)

    def get(self, path: str, *, deadline: float) -> Answer:
        """Ask for a path, until `deadline` (monotonic seconds). Raises HttpError."""

        def head(target: str) -> bytes:
            return f"GET {target} HTTP/1.1\r\n{self._headers}\r\n".encode("ascii")

        return self._follow(self._path(path), head, b"", deadline, CancelToken())

    def post(self, path: str, body: bytes, *, request_id: str, deadline: float, cancelled: CancelToken) -> Answer:
        """Send a JSON body as it stands. Raises HttpError, or RowCancelled once the connection is cut."""
        head = partial(self._post_head, body=body, request_id=request_id)
        return self._follow(self._path(path), head, body, deadline, cancelled)

    def begin(
        self,
        path: str,
        body: bytes,
        *,
        request_id: str,
        deadline: float,
        cancelled: CancelToken,
        ended: Callable[[Outcome], None],
    ) -> bool:
        """Send a JSON body as it stands on a kept connection, and do not wait.

        `ended` is called once, in the client's own thread and maybe before this returns: it must not wait. False:
        nothing was sent, `post` it. So it is while no connection is free, over TLS, and for a very large body.
        """
        head = self._post_head(self._path(path), body, request_id)
        if self._loop is None or len(body) > ONE_WRITE_BYTES or (connection := self._take_kept()) is None:
            return False
        try:
            watch = cancelled.watch(connection.abort)
        except RowCancelled:
            self._give_back(connection, reusable=True)
            return False
        if self._loop.add(Exchange(connection, head, body, deadline, cancelled, watch, ended)):
            return True
        cancelled.unwatch(watch)
        self._drop(connection)
        return False

    @contextmanager
    def lines(
        self, path: str, body: bytes, *, idle_seconds: float, cancelled: CancelToken
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Send a JSON body and give the status and the lines of the answer as they come, on a connection of its own.

        Raises HttpError, and so does the iteration: DeadlinePassed when nothing comes for `idle_seconds`. Raises
        RowCancelled once the connection is cut. Leaving the block closes the connection.
        """
        head = (
            f"POST {self._path(path)} HTTP/1.1\r\n{self._headers}Connection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection = self._new()
        try:
            with cancelled.watching(connection.abort):
                yield connection.lines(head.encode("ascii"), body, idle_seconds)
        except HttpError:
            cancelled.raise_if_cancelled()
            if self._closed:
                raise ClientClosed("the executor was closed") from None
            raise
        finally:
            self._drop(connection)

    def close(self) -> None:
        """Cut every connection, those in use included."""
        self._closed = True
        for connection in list(self._open):
            connection.abort()
        if self._loop is not None:
            self._loop.close()
        with contextlib.suppress(IndexError):
            while True:
                self._drop(self._idle.pop())

    def _path(self, path: str) -> str:
        if not _PATH.fullmatch(path):
            raise ValueError(f"not a path: {path[:200]!r}")
        return self._prefix + path

    def moved_to(self, answer: Answer) -> str | None:
        """Return where a 307 or 308 sends the same request on this server; None for any other answer."""
        place = answer.headers.get("location")
        if answer.status not in _MOVED or not place:
            return None
        try:
            parts = urlsplit(urljoin(self._base, place))
            origin = (parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme))
        except ValueError:  # an address or a port that is none
            return None
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        return target if origin == self._origin and _PATH.fullmatch(target) else None

    def _follow(
        self, target: str, head: Callable[[str], bytes], body: bytes, deadline: float, cancelled: CancelToken
    ) -> Answer:
        """Send a request, and again to where the server has moved it. An answer that is a redirect was not followed."""
        for _ in range(_MAX_MOVES):
            answer = self._exchange(head(target), body, deadline, cancelled)
            moved = self.moved_to(answer)
            if moved is None:
                break
            target = moved
        return answer

    def _post_head(self, target: str, body: bytes, request_id: str) -> bytes:
        start = self._starts.get(target)
        if start is None:
            if len(self._starts) >= _MAX_STARTS:
                self._starts.clear()
            lines = f"POST {target} HTTP/1.1\r\n{self._headers}Content-Type: application/json\r\n"
            start = self._starts[target] = lines.encode("ascii")
        return b"%bX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n" % (start, request_id.encode(), len(body))

    def _exchange(self, head: bytes, body: bytes, deadline: float, cancelled: CancelToken) -> Answer:
        connection = self._take_kept() or self._new()
        reused = connection.used
        exchange = partial(connection.exchange, head, body, deadline)
        try:
            return self._wait_for(connection, exchange, cancelled)
        except ConnectionCut:
            if not reused:
                raise
        return self._once_more(head, body, deadline, cancelled)

    def _once_more(self, head: bytes, body: bytes, deadline: float, cancelled: CancelToken) -> Answer:
        """The server ended a kept connection at the very moment we used it: that says nothing about the row."""
        connection = self._new()
        try:
            return self._wait_for(connection, partial(connection.exchange, head, body, deadline), cancelled)
        except Unreachable as error:
            # Unless nobody is there any more: then the row may well have been what ended the server.
            raise ConnectionCut(f"the server ended with the row: {error}") from error

    def _wait_for(self, connection: Connection, exchange: Callable[[], Answer], cancelled: CancelToken) -> Answer:
        try:
            with cancelled.watching(connection.abort):
                answer = exchange()
        except BaseException as error:  # whatever it was, the connection is in an unknown state
            self._lose(connection, error)
            self._check(error, cancelled)
            raise
        self._give_back(connection, reusable=answer.reusable)
        return answer

    def _ended(self, exchange: Exchange, came: Answer | Exception) -> None:
        """Hear of the end of an exchange that was begun."""
        exchange.cancelled.unwatch(exchange.watch)
        if isinstance(came, Answer):
            self._give_back(exchange.connection, reusable=came.reusable)
            exchange.ended(came)
            return
        if not isinstance(came, MustWait):
            self._lose(exchange.connection, came)
        exchange.ended(partial(self._rest, exchange, came))

    def _rest(self, exchange: Exchange, came: Exception) -> Answer:
        """Do what could not be done without waiting."""
        cancelled, deadline = exchange.cancelled, exchange.deadline
        if isinstance(came, MustWait):
            connection = exchange.connection
            try:
                return self._wait_for(connection, partial(connection.finish, deadline), cancelled)
            except ConnectionCut as error:
                came = error
        else:
            self._check(came, cancelled)
        if isinstance(came, ConnectionCut):
            return self._once_more(exchange.head, exchange.body, deadline, cancelled)
        raise came

    def _lose(self, connection: Connection, error: BaseException) -> None:
        self._drop(connection)
        self.breaks += isinstance(error, ConnectionCut | Unreachable)

    def _check(self, error: BaseException, cancelled: CancelToken) -> None:
        """Tell a connection that we cut ourselves from one that broke. Raises RowCancelled or ClientClosed."""
        cancelled.raise_if_cancelled()
        if self._closed and isinstance(error, ConnectionCut):
            raise ClientClosed("the executor was closed") from None

    def _take_kept(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            is_fresh = connection.is_fresh(time.monotonic())
            if is_fresh and connection.is_silent():
                return connection
            self._drop(connection)
            self.breaks += is_fresh
        return None

    def _new(self) -> Connection:
        if self._closed:
            raise ClientClosed("the executor was closed")
        connection = Connection(self._address, self._tls, self._connect_seconds, self._max_answer_bytes)
        self._open.add(connection)
        return connection

    def _give_back(self, connection: Connection, *, reusable: bool) -> None:
        if not reusable or connection.spent or self._closed:
            self._drop(connection)
            return
        self._idle.append(connection)
        try:
            if not self._idle[0].is_fresh(time.monotonic()):  # the oldest rest at the left end
                self._drop(self._idle.popleft())
        except IndexError:
            pass  # another thread was quicker

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()
