"""`/v1/events`, and a batch's events as they come (server-sent)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.schemas.events import EventObject
from app.schemas.listing import Listing
from app.services import cursors, events
from app.services.context import Caller, Yard
from app.services.events import Look

LOOK_SECONDS = 0.5
QUIET_LOOKS = 30
"""After so many looks without an event a comment is sent, so that proxies keep the connection."""
MAX_LOOKS = 1200
"""Then the stream ends and the reader comes again with the last id, as EventSource does by itself."""

router = APIRouter(route_class=GuardedRoute, tags=["events"])

Limit = Annotated[int, Query(ge=1, le=events.MAX_EVENTS_LISTED)]


@router.get("/v1/events")
def listed(
    yard: TheYard, caller: TheCaller, after: str | None = None, subject: str | None = None, limit: Limit = 100
) -> Listing[EventObject]:
    """List events, oldest first."""
    return events.listed(yard, caller, after=after, subject=subject, limit=limit)


@router.get("/v1/batches/{batch_id}/events", response_class=StreamingResponse)
async def stream(
    yard: TheYard,
    caller: TheCaller,
    request: Request,
    batch_id: str,
    after: str | None = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Send a batch's events until it has ended."""
    seq = cursors.parse(last_event_id or after)
    first = await run_in_threadpool(events.of_batch, yard, caller, batch_id, seq)
    lines = _lines(yard, caller, request, batch_id, seq, first)
    return StreamingResponse(lines, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _lines(
    yard: Yard, caller: Caller, request: Request, batch_id: str, seq: int, look: Look
) -> AsyncIterator[str]:
    quiet = 0
    for _ in range(MAX_LOOKS):
        for event in look.events:
            seq = int(event.id)
            yield f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(event.model_dump())}\n\n"
        quiet = 0 if look.events else quiet + 1
        if look.last or await request.is_disconnected():
            return
        if quiet and quiet % QUIET_LOOKS == 0:
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_SECONDS)
        look = await run_in_threadpool(events.of_batch, yard, caller, batch_id, seq)
