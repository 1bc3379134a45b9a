"""Pools on the wire (PL-01, PL-02).

GET   /v1/pools         -> Listing of PoolInfo
POST  /v1/pools         NewPool -> PoolInfo
PATCH /v1/pools/{name}  PoolChange -> PoolInfo
"""

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.wire import Name, Wire

SlotClass = Literal["batches", "runs", "agents", "evaluations"]
Count = Annotated[int, Field(ge=0, le=100_000)]


class PoolTiming(Wire):
    """A pool's own rungs of the ladder, all three together (LS-01 to LS-05)."""

    renew_seconds: float
    grace_seconds: float
    toleration_seconds: float


class PoolChange(Wire):
    """What to change. A field that is absent stays; null takes a bound away."""

    slots: dict[SlotClass, Count] | None = None
    max_load: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    min_memory_gb: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_losses: int | None = Field(default=None, ge=1, le=1_000_000)
    timing: PoolTiming | None = None


class NewPool(PoolChange):
    """Ask for a pool. `shared` pools serve every org and are the operator's to make."""

    name: Name
    shared: bool = True


class PoolInfo(Wire):
    """A pool: the capacity of each worker in it, and the thresholds that keep jobs off a busy host."""

    name: str
    object: Literal["pool"] = "pool"
    shared: bool
    default: bool
    slots: dict[str, int]
    max_load: float | None
    min_memory_gb: float | None
    max_losses: int | None
    timing: dict[str, float]
    created_at: int
