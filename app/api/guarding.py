"""The door of every route: the key is looked at before a byte of the body is read."""

import json
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.types import Message

from app.api.access import scopes_of
from app.api.in_flight import InFlight, UnderWay
from app.api.threads import HEARTBEATS, LARGE_BODIES, ORG, USERS, WORKERS, Threads
from app.domain.errors import BadRequest, Encoded, NotFound, TooLarge
from app.schemas.json_values import has_more_values
from app.schemas.segments import MAX_BYTES
from app.services import tokens
from app.services.context import Caller, Yard

_SHOWN_ENCODING = 100
LARGE_BYTES = 64 * 1024
"""A body of more is counted until its call is answered, and waits for its turn to be parsed."""
MAX_VALUES = 50_000
"""Of a JSON body. A heartbeat has the most: three lists of 10,000 leases, and up to 4,000 models."""


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
                ORG.set(request.headers.get("authorization", ""))  # until it is known whose key that is
                request.state.caller = caller = await self.threads.run(_admit, request, scopes)
                ORG.set(caller.org_id)
            _refuse_encoded(request)
            if limit is None:
                return await handle(request)
            if self.body_field is None:
                return await handle(_bounded(request, limit))
            with ExitStack() as leaving:
                return await handle(await _whole(_bounded(request, limit), limit, leaving))

        return guarded


class WorkerRoute(GuardedRoute):
    """A route whose messages name thousands of leases or models: 1 MiB of names, and some 600 KiB of numbers."""

    max_body_bytes = 2 * 1024 * 1024
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


class _Whole(Request):
    """A request whose body was read, and is JSON of no more values than any message of ours has.

    A value takes up to a hundred times the memory and the time of its bytes.
    """

    async def json(self) -> Any:
        """Parse it; a large one waits for those of other orgs, and for no more than one of its own."""
        body = await self.body()
        return await LARGE_BODIES.run(_parsed, body) if len(body) > LARGE_BYTES else _parsed(body)


async def _whole(request: Request, limit: int, leaving: ExitStack) -> Request:
    """Read a body, counted while it is read; a large one until `leaving` is left. Raises as InFlight."""
    org_id, in_flight = ORG.get(), await _in_flight(request)
    with ExitStack() as reading:
        reading.enter_context(in_flight.hold(UnderWay.BODIES, org_id))
        reading.enter_context(in_flight.hold(UnderWay.BODY_BYTES, org_id, _length(request, limit)))
        body = await request.body()
        if len(body) > LARGE_BYTES:
            leaving.enter_context(reading.pop_all())

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return _Whole(request.scope, receive)


def _parsed(body: bytes) -> Any:
    if has_more_values(body, MAX_VALUES):
        raise BadRequest(f"the request's body has more than {MAX_VALUES} values", code="too_many_values")
    return json.loads(body)


def _length(request: Request, limit: int) -> int:
    """Return how long the body is, or `limit` when its head does not say. Raises TooLarge."""
    length = request.headers.get("content-length", "")
    if not length.isdigit():
        return limit
    if int(length) > limit:
        raise _too_large(limit)
    return int(length)


def _bounded(request: Request, limit: int) -> Request:
    """Give the request with a body of at most `limit` bytes, whatever its head says of the length."""
    _length(request, limit)
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
