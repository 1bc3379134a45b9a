"""Pools on the wire (PL-01, PL-02).

GET   /v1/pools         -> Listing of PoolInfo
POST  /v1/pools         NewPool -> PoolInfo
PATCH /v1/pools/{name}  PoolChange -> PoolInfo
"""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.timing import (
    MAX_GRACE_SECONDS,
    MAX_RENEW_SECONDS,
    MAX_TOLERATION_SECONDS,
    MIN_POOL_RENEW_SECONDS,
)
from app.schemas.wire import Figure, Name, Wire

SlotClass = Literal["batches", "runs", "agents", "evaluations"]
SlotCount = Annotated[int, Field(ge=0, le=100_000)]


class PoolTiming(Wire):
    """A pool's own rungs of the ladder, all three together (LS-01 to LS-05); app.domain.timing says their order."""

    renew_seconds: float = Field(ge=MIN_POOL_RENEW_SECONDS, le=MAX_RENEW_SECONDS)
    grace_seconds: float = Field(gt=0, le=MAX_GRACE_SECONDS)
    toleration_seconds: float = Field(gt=0, le=MAX_TOLERATION_SECONDS)


class PoolChange(Wire):
    """What to change. A field that is absent stays; null takes a bound away."""

    slots: Annotated[dict[SlotClass, SlotCount], Field(max_length=4)] | None = None
    max_load: float | None = Field(default=None, gt=0, le=1e6)
    min_memory_gb: Figure | None = None
    max_losses: int | None = Field(default=None, ge=1, le=1_000_000)
    timing: PoolTiming | None = None


class NewPool(PoolChange):
    """Ask for a pool. `shared` pools serve every org and are the operator's to make."""

    name: Name
    shared: bool = True


class PoolInfo(Wire):
    """A pool: the capacity of each worker in it, and the thresholds that keep jobs off a busy host.

    `out_of_bounds` are values of `timing` as they were stored before today's bounds; `timing` says how they are read.
    """

    name: str
    object: Literal["pool"] = "pool"
    shared: bool
    default: bool
    slots: dict[str, int]
    max_load: float | None
    min_memory_gb: float | None
    max_losses: int | None
    timing: dict[str, float]
    out_of_bounds: dict[str, str] = Field(default_factory=dict)
    created_at: int
