"""The ladder of silence: what a worker's silence means, rung by rung (R-03, LS-01 to LS-05)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

STALE_SECONDS = 60.0
SELF_STOP_RENEWALS = 2
STOP_RENEWALS = 3


class TimingInvalid(ValueError):
    """The rungs do not stand in order; the message says which and what to change."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A pool's rungs, all in seconds. Raises TimingInvalid when they would let a job run twice."""

    renew_seconds: float = 10.0
    grace_seconds: float = 50.0
    toleration_seconds: float = 300.0
    kill_after_seconds: float = 10.0
    sweep_seconds: float = 5.0
    stop_grace_seconds: float | None = None
    """How long a stopping lease may still hand in and report (PROTOCOL 5); None: three renewals."""

    def __post_init__(self) -> None:
        """Check the order of the rungs."""
        if not 0 < self.renew_seconds < self.grace_seconds < self.self_stop_seconds:
            raise TimingInvalid(
                "renew_seconds < grace_seconds < toleration_seconds - 2 * renew_seconds does not hold: "
                f"{self.renew_seconds:g} < {self.grace_seconds:g} < {self.self_stop_seconds:g}. "
                "Raise toleration_seconds or lower the others."
            )
        if self.kill_after_seconds + 1 >= SELF_STOP_RENEWALS * self.renew_seconds:
            raise TimingInvalid(
                f"kill_after_seconds + 1 ({self.kill_after_seconds + 1:g}) must be below 2 * renew_seconds "
                f"({SELF_STOP_RENEWALS * self.renew_seconds:g}), or a job could outlive its lease. "
                "Lower kill_after_seconds."
            )

    @property
    def self_stop_seconds(self) -> float:
        """After this long without an answered heartbeat a worker stops its own jobs (LS-05)."""
        return self.toleration_seconds - SELF_STOP_RENEWALS * self.renew_seconds

    @property
    def grace(self) -> timedelta:
        """The grace as a duration."""
        return timedelta(seconds=self.grace_seconds)

    def unreachable(self, silence: timedelta) -> bool:
        """Tell whether a worker silent for this long counts zero slots (LS-03)."""
        return silence.total_seconds() > self.grace_seconds

    def stale(self, silence: timedelta) -> bool:
        """Tell whether a worker silent for this long reads `stale` (WS-04)."""
        return silence.total_seconds() > max(STALE_SECONDS, self.grace_seconds)

    def lease_end(self, now: datetime) -> datetime:
        """When a lease granted or renewed at `now` ends."""
        return now + timedelta(seconds=self.toleration_seconds)

    def stop_end(self, now: datetime) -> datetime:
        """When a lease told to stop at `now` is revoked."""
        grace = self.stop_grace_seconds if self.stop_grace_seconds is not None else STOP_RENEWALS * self.renew_seconds
        return now + timedelta(seconds=grace)
