"""The door of every route: the key is looked at before a byte of the body is read."""

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.types import Message

from app.api.access import scopes_of
from app.api.in_flight import InFlight
from app.api.threads import HEARTBEATS, USERS, WORKERS, Threads
from app.domain.errors import BadRequest, Encoded, NotFound, TooLarge
from app.schemas.segments import MAX_BYTES
from app.services import tokens
from app.services.context import Caller, Yard

_SHOWN_ENCODING = 100


class GuardedRoute(APIRoute):
    """A route that only calls its function for a caller with one of the scopes that app.api.access names."""

    max_body_bytes: int | None = 1024 * 1024
    """FastAPI's own bound answers in plain text, and over a 401 too."""
    threads: Threads = USERS

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        # A route that is included in another router comes here again, with the wrapped function.
        super().__init__(path, endpoint if iscoroutinefunction(endpoint) else self._threaded(endpoint), **settings)

    def _threaded(self, endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Run a plain function in this route's threads, where its answer becomes JSON, too.

        FastAPI would do that in the event loop, where a list of 10,000 files holds up everybody.
        """

        def answered(**arguments: Any) -> Any:
            answer = endpoint(**arguments)
            if isinstance(answer, Response) or self.response_model is None:
                return answer
            body = TypeAdapter(self.response_model).dump_json(answer)
            return Response(body, self.status_code or 200, media_type="application/json")

        @wraps(endpoint)
        async def in_thread(**arguments: Any) -> Any:
            return await self.threads.run(answered, **arguments)

        return in_thread

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler, which would read the body first."""
        handle = super().get_route_handler()
        scopes = scopes_of(self.methods or set(), self.path)
        limit = self.max_body_bytes

        async def guarded(request: Request) -> Response:
            _refuse_nul(request)
            if scopes:
                request.state.caller = await self.threads.run(_admit, request, scopes)
            _refuse_encoded(request)
            return await handle(request if limit is None else _bounded(request, limit))

        return guarded


class WorkerRoute(GuardedRoute):
    """A route whose messages name thousands of leases or models."""

    max_body_bytes = 16 * 1024 * 1024
    threads = WORKERS


class HeartbeatRoute(WorkerRoute):
    """A route whose calls wait for no other work of workers."""

    threads = HEARTBEATS


class StreamedRoute(GuardedRoute):
    """A route that reads its body itself, and knows how much is too much."""

    max_body_bytes = None


class HandInRoute(WorkerRoute):
    """A route of workers that reads its body itself."""

    max_body_bytes = MAX_BYTES


async def _yard(request: Request) -> Yard:
    yard: Yard = request.app.state.yard
    return yard


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _in_flight(request: Request) -> InFlight:
    found: InFlight = request.app.state.in_flight
    return found


# All are coroutines because FastAPI would send a plain function to a thread for each.
TheYard = Annotated[Yard, Depends(_yard)]
TheCaller = Annotated[Caller, Depends(_caller)]
TheInFlight = Annotated[InFlight, Depends(_in_flight)]


def _admit(request: Request, scopes: tuple[str, ...]) -> Caller:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    caller = tokens.authenticate(request.app.state.yard, secret.strip() if scheme.lower() == "bearer" else None)
    if caller.token_id is not None:
        request.app.state.used_tokens.add(caller.token_id)
    caller.need(*scopes)
    return caller


def _bounded(request: Request, limit: int) -> Request:
    """Give the request with a body of at most `limit` bytes, whatever its head says of the length."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    left = limit

    async def receive() -> Message:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise _too_large(limit)
        return message

    return Request(request.scope, receive)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request's body is too large: at most {limit} bytes", code="request_too_large")


def _refuse_encoded(request: Request) -> None:
    """Without this a compressed body is called malformed, and nothing says why."""
    encoding = request.headers.get("content-encoding", "").strip()
    if encoding and encoding.lower() != "identity":
        message = f"the request's body is encoded as {encoding[:_SHOWN_ENCODING]!a}: send it without Content-Encoding"
        raise Encoded(message, code="unsupported_content_encoding")


def _refuse_nul(request: Request) -> None:
    """No id and no argument of a query holds a NUL, and no database takes one."""
    if any("\0" in str(value) for value in request.path_params.values()):
        raise NotFound("there is no object of that name", code="not_found")
    if "%00" in request.url.query:
        raise BadRequest("a query's argument holds a NUL", code="invalid_value")
