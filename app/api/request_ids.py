"""Every answer has an `x-request-id`, every log line of a call too, and a bug ends in an envelope like all else."""

import logging
import re
import secrets

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.api import errors
from app.api.middleware import Middleware, at_start

_SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_log = logging.getLogger("gpuyard.api")


class RequestIds(Middleware):
    """A caller's own id is kept when it is sane."""

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the call, and answer for what nobody caught."""
        request_id = _id_for(Headers(scope=scope).get("x-request-id"))
        started = False

        def name(message: Message) -> None:
            nonlocal started
            started = True
            MutableHeaders(scope=message)["x-request-id"] = request_id

        named = at_start(send, name)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, named)
            except ClientDisconnect:
                _log.info("%s %s: the caller went away", scope["method"], scope["path"])
            except Exception:
                _log.exception("%s %s", scope["method"], scope["path"])
                if started:
                    raise
                await errors.bug(request_id)(scope, receive, named)


def new_id() -> str:
    """Make an id for a call that brought none."""
    return f"req_{secrets.token_hex(16)}"


def _id_for(given: str | None) -> str:
    return given if given is not None and _SANE.fullmatch(given) else new_id()
