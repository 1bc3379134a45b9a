"""One HTTP connection pool to the control plane, and the one way to call it: same body again until a deadline."""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import httpx
import structlog

from app.client.errors import ControlPlaneError, TryLater, error_of
from app.client.patience import Patience
from app.client.reachability import Reachability
from config.broker_url import masked

_CONNECT_SECONDS = 3.0
_TIMEOUT = httpx.Timeout(connect=_CONNECT_SECONDS, read=30.0, write=30.0, pool=10.0)
# Heartbeat, hand-ins, claims and downloads of a few shares: each has its own connection, none waits for another.
# Kept ones end before a server's or a proxy's own keep-alive does, or a call now and then meets a closed socket.
_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=16, keepalive_expiry=3.0)
_NO_ANSWER = 300
_NO_CONTENT = 204
REQUEST_ID_HEADER = "x-request-id"
"""What a call is called in our log and in the control plane's; the same for each try of it."""


class Http:
    """A thread-safe caller. `headers` go with every call; `close` also ends every wait between two tries.

    `proxy`: the URL of one that all calls go through (config.proxies); the environment is not asked here.
    `patience_with`: for how many seconds a call that ends so is tried again, where its own deadline is shorter.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience_with: Callable[[TryLater], float] = lambda _: 0.0,
    ) -> None:
        self._clock = clock
        self._patience_with = patience_with
        self._way = f" through the proxy {masked(proxy)}" if proxy else ""
        self.reachability = Reachability(base_url, clock)
        self._client = httpx.Client(
            base_url=base_url,
            headers={"authorization": f"Bearer {api_key}", "user-agent": "gpuyard", **(headers or {})},
            timeout=_TIMEOUT,
            transport=transport or _patient(base_url, proxy),
        )

    def call(
        self,
        method: str,
        path: str,
        *,
        deadline_seconds: float = 0.0,
        timeout_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        files: Any = None,
        data: Mapping[str, Any] | None = None,
        once_only: bool = False,
    ) -> Any:
        """Call and give the answer's JSON (None for 204). Raises one of app.client.errors.

        TryLater is tried again with the same body (app.client.patience) as long as the next try would begin within
        `deadline_seconds`; then the last TryLater is raised. `once_only`: the body cannot be sent twice.
        """
        kind = {} if content is None or files is not None else {"content-type": "application/json"}
        arguments: dict[str, Any] = {
            "content": content,
            "params": params,
            "files": files,
            "data": data,
            "headers": {**kind, **(headers or {})},
        }
        if timeout_seconds is not None:
            # Only the answer may take long: a host that does not even take the connection is given up as usual.
            arguments["timeout"] = httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS))

        def once() -> Any:
            with self._transport():
                response = self._client.request(method, path, **arguments)
            self._check(response)
            if response.status_code == _NO_CONTENT or not response.content:
                return None
            try:
                return response.json()
            except ValueError as error:
                raise TryLater(f"{method} {path} was answered with no JSON", status=response.status_code) from error

        patience = self.patience(deadline_seconds)
        with _named_call(arguments["headers"]):
            while True:
                try:
                    return once()
                except TryLater as error:
                    if once_only or not patience.waits(error):
                        raise

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        once_only: bool = False,
    ) -> Iterator[httpx.Response]:
        """Open an answer to be read piece by piece. Raises as `call` does; a broken stream is TryLater.

        Only a stream that was not opened is tried again, and only as `patience_with` says.
        """
        named = dict(headers or {})
        patience = self.patience(0.0)
        with _named_call(named), self._transport(), ExitStack() as opened:
            while True:
                response = opened.enter_context(self._client.stream(method, path, headers=named, params=params))
                try:
                    if response.status_code >= _NO_ANSWER:
                        response.read()
                    self._check(response)
                    break
                except TryLater as error:
                    opened.close()
                    if once_only or not patience.waits(error):
                        raise
            yield response

    def _check(self, response: httpx.Response) -> None:
        error = error_of(response) if response.status_code >= _NO_ANSWER else None
        if isinstance(error, TryLater):
            self.reachability.failed(f"HTTP {error.status}: {error.message}")
        else:
            self.reachability.answered()
        if error is not None:
            raise error

    @contextmanager
    def _transport(self) -> Iterator[None]:
        """Turn what the network does into TryLater."""
        try:
            yield
        except httpx.RequestError as error:  # nobody answers, or what comes cannot be read (a proxy's broken gzip)
            if self.reachability.is_closed:
                raise TryLater("the client is closed") from error
            self.reachability.failed(f"{type(error).__name__}{self._way}: {error}")
            raise TryLater(f"no answer{self._way}: {error or type(error).__name__}") from error
        except RuntimeError as error:
            # httpx says so of a client that another thread has closed.
            if not self.reachability.is_closed:
                raise
            raise TryLater("the client is closed") from error

    def patience(self, deadline_seconds: float) -> Patience:
        """Give the waits of one call, made right before its first try."""
        return Patience(self.reachability, deadline_seconds, self._clock, self._patience_with)

    def close(self) -> None:
        """End waits and connections. A call under way in another thread ends with TryLater."""
        self.reachability.close()
        self._client.close()

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


@contextmanager
def _named_call(headers: dict[str, str]) -> Iterator[None]:
    """Give a call its id: in its headers, on the lines that are logged meanwhile, and in the error it ends with."""
    request_id = headers.setdefault(REQUEST_ID_HEADER, f"req_{secrets.token_hex(16)}")
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        try:
            yield
        except ControlPlaneError as error:
            error.request_id = request_id
            raise


def _patient(base_url: str, proxy: str | None) -> httpx.HTTPTransport:
    """Httpx's own transport, but for the look-up of names."""
    from app.client.names import PatientNames  # noqa: PLC0415 - a command that calls nobody need not load httpcore

    # Reading the certificate store takes 0.2 s, and a plain HTTP URL (loopback) has no use for it.
    transport = httpx.HTTPTransport(verify=not base_url.startswith("http://"), limits=_LIMITS, proxy=proxy)
    transport._pool._network_backend = PatientNames()  # noqa: SLF001 - httpcore's own seam, to which httpx has no door
    return transport


def json_bytes(value: Any) -> bytes:
    """Encode a request's body."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
