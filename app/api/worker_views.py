"""`/v1/workers`: workers as people see them (PL-06)."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.schemas.listing import Listing
from app.schemas.worker_views import WorkerInfo
from app.services import worker_views

router = APIRouter(route_class=GuardedRoute, tags=["workers"])


@router.get("/v1/workers")
def listed(
    yard: TheYard, caller: TheCaller, pool: str | None = None, gone: Annotated[bool, Query()] = False
) -> Listing[WorkerInfo]:
    """List workers."""
    return Listing(data=worker_views.listed(yard, caller, pool=pool, gone=gone))


@router.get("/v1/workers/{worker_id}")
def show(yard: TheYard, caller: TheCaller, worker_id: str) -> WorkerInfo:
    """Show a worker, by its id or its name."""
    return worker_views.show(yard, caller, worker_id)
