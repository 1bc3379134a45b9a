"""`/v1/workers`: workers as people see them (PL-06), and what an admin asks of one."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.schemas.listing import Listing
from app.schemas.worker_views import WorkerInfo
from app.services import commands, worker_views

router = APIRouter(route_class=GuardedRoute, tags=["workers"])

Limit = Annotated[int, Query(ge=1, le=worker_views.MAX_WORKERS_LISTED)]


@router.get("/v1/workers")
def listed(
    yard: TheYard,
    caller: TheCaller,
    pool: str | None = None,
    gone: Annotated[bool, Query()] = False,
    after: str | None = None,
    limit: Limit = worker_views.MAX_WORKERS_LISTED,
) -> Listing[WorkerInfo]:
    """List workers, by pool and name."""
    return worker_views.listed(yard, caller, pool=pool, gone=gone, after=after, limit=limit)


@router.get("/v1/workers/{worker_id}")
def show(yard: TheYard, caller: TheCaller, worker_id: str) -> WorkerInfo:
    """Show a worker, by its id or its name."""
    return worker_views.show(yard, caller, worker_id)


@router.post("/v1/workers/{worker_id}/drain")
def drain(yard: TheYard, caller: TheCaller, request: Request, worker_id: str) -> WorkerInfo:
    """Ask a worker to finish what it has and leave (DR-06)."""
    return _asked(yard, caller, request, commands.drain(yard, caller, worker_id))


@router.post("/v1/workers/{worker_id}/reset")
def reset(yard: TheYard, caller: TheCaller, request: Request, worker_id: str) -> WorkerInfo:
    """Ask a worker to end its back-off (BK-04)."""
    return _asked(yard, caller, request, commands.reset(yard, caller, worker_id))


def _asked(yard: TheYard, caller: TheCaller, request: Request, worker_id: str) -> WorkerInfo:
    request.app.state.listeners.ring()
    return worker_views.show(yard, caller, worker_id)
