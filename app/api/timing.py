"""Times every call, by its route and status, and leaves a line in the log about it.

A label or a line never holds what a caller made up: routes are our own templates, methods those that we have.
"""

import time

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.api.middleware import Middleware, at_start
from app.services.context import Yard

METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"})
UNKNOWN = "unknown"
"""The route of a call that met none of ours."""
CLIENT_GONE = 499
_ERROR = 400
_SERVER_ERROR = 500
_log = structlog.get_logger("gpuyard.api")


class Timed(Middleware):
    """Inside of the one that names calls."""

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on."""
        began = time.perf_counter()
        status = _SERVER_ERROR

        def note(message: Message) -> None:
            nonlocal status
            status = message["status"]

        try:
            await self.app(scope, receive, at_start(send, note))
        except ClientDisconnect:
            status = CLIENT_GONE
            raise
        finally:
            _count(scope, status, time.perf_counter() - began)


def _count(scope: Scope, status: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in METHODS else UNKNOWN
    route = getattr(scope.get("route"), "path", UNKNOWN)
    yard: Yard = scope["app"].state.yard
    yard.counters.http_seconds.labels(method, route, str(status)).observe(seconds)
    if status >= _SERVER_ERROR:
        tell = _log.warning
    elif status >= _ERROR or (method != "GET" and route.startswith("/v1/")):
        tell = _log.info
    else:  # what workers say all the time, and what people look at
        tell = _log.debug
    client = (scope.get("client") or (None,))[0]  # behind a proxy: whom that one names (config.settings, tls)
    tell("http.answered", method=method, route=route, status=status, seconds=round(seconds, 4), client=client)
