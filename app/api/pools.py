"""`/v1/pools` (PL-01, PL-02)."""

from fastapi import APIRouter

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.schemas.listing import Listing
from app.schemas.pools import NewPool, PoolChange, PoolInfo
from app.services import pools

router = APIRouter(route_class=GuardedRoute, tags=["pools"])


@router.get("/v1/pools")
def listed(yard: TheYard, caller: TheCaller) -> Listing[PoolInfo]:
    """List the pools the caller may use."""
    return Listing(data=pools.listed(yard, caller))


@router.post("/v1/pools")
def create(yard: TheYard, caller: TheCaller, wanted: NewPool) -> PoolInfo:
    """Make a pool."""
    return pools.create(yard, caller, wanted)


@router.patch("/v1/pools/{name}")
def change(yard: TheYard, caller: TheCaller, name: str, wanted: PoolChange) -> PoolInfo:
    """Change a pool."""
    return pools.change(yard, caller, name, wanted)
