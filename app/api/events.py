"""`/v1/events`, and a batch's events as they come (server-sent)."""

import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.guarding import GuardedRoute, TheCaller, TheInFlight, TheYard
from app.api.in_flight import UnderWay
from app.api.streams import Shown, Stream, Streams, shown
from app.db.store import DatabaseUnavailable
from app.domain.errors import Refusal
from app.schemas.events import EventObject
from app.schemas.listing import Listing
from app.services import batches, cursors, events
from app.services.context import Caller, Yard
from app.services.events import NOTHING, Look

TICK_SECONDS = 1.0
"""How often a stream looks whether its reader is there still."""
QUIET_SECONDS = 15.0
"""After so long without an event a comment is sent, so that proxies keep the connection."""
MAX_SECONDS = 600.0
"""Then the stream ends and the reader comes again with the last id, as EventSource does by itself."""

_log = logging.getLogger("gpuyard.api")
router = APIRouter(route_class=GuardedRoute, tags=["events"])

Show = Literal["events", "batch", "both"]
Limit = Annotated[int, Query(ge=1, le=events.MAX_EVENTS_LISTED)]


@router.get("/v1/events")
def listed(
    yard: TheYard,
    caller: TheCaller,
    after: str | None = None,
    subject: str | None = None,
    limit: Limit = 100,
    order: Literal["asc", "desc"] = "asc",
) -> Listing[EventObject]:
    """List events, oldest first, or newest first with `order=desc`."""
    return events.listed(yard, caller, after=after, subject=subject, limit=limit, newest_first=order == "desc")


@router.get("/v1/batches/{batch_id}/events", response_class=StreamingResponse)
async def stream(
    yard: TheYard,
    caller: TheCaller,
    in_flight: TheInFlight,
    request: Request,
    batch_id: str,
    after: str | None = None,
    show: Show = "events",
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Send a batch's events until it has ended, or the batch itself whenever it has changed, or both."""
    seq = cursors.parse(last_event_id or after)
    source = _Source(yard, caller, batch_id)
    with ExitStack() as leaving:
        # Before anything is waited for: after a restart all readers come back at once.
        leaving.enter_context(in_flight.hold(UnderWay.STREAMS, caller.org_id))
        streams: Streams = request.app.state.streams
        waiting = leaving.enter_context(streams.open(batch_id, seq, caller.token_id, shows_events=show != "batch"))
        first = await source.look(seq) if waiting.shows_events else NOTHING
        if show != "events":
            waiting.shown = await source.batch()
        return _Streamed(_lines(source, request, waiting, first), leaving.pop_all())


class _Streamed(StreamingResponse):
    """A stream as it is sent. However that ends, even before the first line, its room is free then."""

    def __init__(self, lines: AsyncIterator[str], leaving: ExitStack) -> None:
        # Some proxies hold an answer back until it is whole, unless they are told not to.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._leaving:
            await super().__call__(scope, receive, send)


class _Source:
    """Where a stream looks for itself."""

    def __init__(self, yard: Yard, caller: Caller, batch_id: str) -> None:
        self.batch_id = batch_id
        self._asks = (yard, caller, batch_id)

    async def look(self, seq: int) -> Look:
        return await run_in_threadpool(events.of_batch, *self._asks, seq)

    async def batch(self) -> Shown:
        return shown(await run_in_threadpool(batches.retrieve, *self._asks))


async def _lines(source: _Source, request: Request, waiting: Stream, first: Look) -> AsyncIterator[str]:
    try:
        async for text in _texts(source, request, waiting, first):
            yield text
    except (DatabaseUnavailable, Refusal) as error:
        _log.warning("a stream of %s ends: %s", source.batch_id, error)


async def _texts(source: _Source, request: Request, waiting: Stream, look: Look) -> AsyncIterator[str]:
    begun = said = time.monotonic()
    sent: Shown | None = None
    while True:
        text = ""
        for event in look.events:
            waiting.seq = int(event.id)
            text += f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(event.model_dump())}\n\n"
        if look.last and waiting.shown is not None and not waiting.shown.has_ended:
            waiting.shown = await source.batch()  # it was read before its end was
        if waiting.shown is not None and waiting.shown != sent:
            sent = waiting.shown
            text += sent.text
        now = time.monotonic()
        if not text and now - said >= QUIET_SECONDS:
            text = ": still here\n\n"
        if text:
            said = now
            yield text
        over = look.last or (sent is not None and sent.has_ended and not waiting.shows_events)
        if over or waiting.is_over or now - begun >= MAX_SECONDS or await request.is_disconnected():
            return
        await waiting.wait(TICK_SECONDS)
        if waiting.is_refused:
            return
        look = await source.look(waiting.seq) if waiting.shows_events and waiting.head > waiting.seq else NOTHING
