"""`POST /workers/poll`: the bell by HTTP, for workers that cannot reach the broker (A-03, A-16; PROTOCOL 6)."""

import asyncio
from contextlib import ExitStack

from fastapi import APIRouter, Request

from app.api.guarding import TheCaller, TheInFlight, TheYard, WorkerRoute
from app.api.in_flight import UnderWay
from app.api.listeners import Listeners
from app.api.threads import WORKERS
from app.domain.polls import Told
from app.schemas.polls import MAX_WAIT_SECONDS, Poll, PollAnswer
from app.services import polls

router = APIRouter(route_class=WorkerRoute, tags=["worker protocol"])


@router.post("/workers/poll")
async def poll(yard: TheYard, caller: TheCaller, in_flight: TheInFlight, request: Request, asked: Poll) -> PollAnswer:
    """Wait for messages."""
    listeners: Listeners = request.app.state.listeners
    clock = asyncio.get_running_loop().time
    until = clock() + min(asked.wait_seconds, MAX_WAIT_SECONDS)
    told = Told.read(asked.cursor)
    with ExitStack() as leaving:
        leaving.enter_context(in_flight.hold(UnderWay.POLLS, caller.org_id))
        pool = await WORKERS.run(polls.note, yard, caller, asked)
        # It listens before it looks the first time: what comes between is not missed.
        listening = listeners.listening(asked.worker_id, pool, told, wants_work=asked.free > 0)
        listener = leaving.enter_context(listening)
        while True:
            found = await WORKERS.run(polls.look, yard, caller, asked, told)
            if found is not None:
                return found
            left = until - clock()
            if left <= 0 or listener.is_over:
                return PollAnswer(cursor=told.cursor)
            await listener.wait(left)
