"""A pool as an owner declares it: `[pools.NAME]` in the file. What is left out comes from the server's settings."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from app.domain.timing import MIN_POOL_RENEW_SECONDS, Timing
from config.fields import Seconds


class PoolSettings(BaseModel):
    """The capacity of each worker in a pool, and its timings (C-14)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batches: NonNegativeInt | None = Field(None, description="Batches at once on a worker.")
    runs: NonNegativeInt | None = Field(None, description="Runs at once on a worker; not used yet.")
    agents: NonNegativeInt | None = Field(None, description="Agent sessions at once on a worker; not used yet.")
    evaluations: NonNegativeInt | None = Field(None, description="Evaluations at once on a worker; not used yet.")
    max_load: Annotated[float, Field(gt=0)] | None = Field(
        None, description="A worker whose 1-minute load per CPU is higher takes no job (PL-02, PL-03)."
    )
    min_memory_gb: Annotated[float, Field(ge=0)] | None = Field(
        None, description="A worker with less free memory takes no job (PL-02)."
    )
    max_losses: PositiveInt | None = Field(None, description="Lost workers a job of this pool survives (R-04).")
    renew_seconds: Annotated[float, Field(ge=MIN_POOL_RENEW_SECONDS)] | None = Field(
        None, description="Heartbeat interval of this pool's workers; at least a second."
    )
    grace_seconds: Seconds | None = Field(None, description="Silence after which a worker is unreachable.")
    toleration_seconds: Seconds | None = Field(None, description="Silence after which leases expire.")
    default: bool = Field(default=False, description="A stock SDK call goes here.")

    @model_validator(mode="after")
    def _all_timings_or_none(self) -> Self:
        """So that no change of a server-wide default can break a pool's own ladder."""
        if len({value is None for value in (self.renew_seconds, self.grace_seconds, self.toleration_seconds)}) > 1:
            raise ValueError("renew_seconds, grace_seconds and toleration_seconds of a pool go together")
        return self

    def timing(self, *, kill_after_seconds: float, sweep_seconds: float) -> Timing | None:
        """The pool's own ladder, or None. Raises ValueError when a job could run twice on it."""
        if self.renew_seconds is None or self.grace_seconds is None or self.toleration_seconds is None:
            return None
        return Timing(
            renew_seconds=self.renew_seconds,
            grace_seconds=self.grace_seconds,
            toleration_seconds=self.toleration_seconds,
            kill_after_seconds=kill_after_seconds,
            sweep_seconds=sweep_seconds,
        )
