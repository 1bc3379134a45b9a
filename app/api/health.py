"""`/healthz`: the process answers. `/readyz`: it can also do its work."""

import asyncio
from contextlib import suppress
from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from app.api.guarding import GuardedRoute
from app.api.threads import READINESS
from app.services import readiness
from app.services.context import Yard
from app.services.readiness import PARTS, Readiness

router = APIRouter(route_class=GuardedRoute, tags=["health"])
FRESH_SECONDS = 1.0
ANSWER_SECONDS = 4.0
"""Less than what asks waits: `gpuyard doctor` five seconds, many balancers as many."""


class ReadinessLooks:
    """The last look of this process. It needs no key, so however many ask, there is one look a second at most.

    Made and used in the event loop.
    """

    def __init__(self) -> None:
        self._found = Readiness()
        self._task: asyncio.Task[Readiness] | None = None
        self._ended_at = float("-inf")

    async def found(self, yard: Yard) -> Readiness:
        """Return what a look found that is fresh, or what is known so far of one that hangs."""
        now = asyncio.get_running_loop().time
        if self._task is None and now() - self._ended_at >= FRESH_SECONDS:
            self._found = Readiness()
            self._task = asyncio.create_task(READINESS.run(readiness.look, yard, for_anybody=True, into=self._found))
            self._task.add_done_callback(self._end)
        task = self._task
        if task is None:
            return self._found
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(task), ANSWER_SECONDS)
        missing = dict.fromkeys(PARTS, f"no answer within {ANSWER_SECONDS:g} s")
        return Readiness(parts=missing | self._found.parts, degraded=dict(self._found.degraded))

    def _end(self, task: asyncio.Task[Readiness]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is None:
            self._ended_at = asyncio.get_running_loop().time()


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process is alive; touches nothing."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """Say whether database, schema and contents can be used, and how old each sweep's last run is."""
    looks: ReadinessLooks = request.app.state.readiness
    found = await looks.found(request.app.state.yard)
    return JSONResponse({"ready": found.ready, **asdict(found)}, 200 if found.ready else 503)
