"""The ladder of silence: what a worker's silence means, rung by rung (R-03, LS-01 to LS-05)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

STALE_SECONDS = 60.0
SELF_STOP_RENEWALS = 2
STOP_RENEWALS = 3
GRACE_RENEWALS = 2
MIN_POOL_RENEW_SECONDS = 1.0
"""The API notes its presence as often as the most frequent heartbeats come, so a pool cannot have them more often."""
MAX_RENEW_SECONDS = 3_600.0
MAX_GRACE_SECONDS = 86_400.0
MAX_TOLERATION_SECONDS = 7 * 86_400.0


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
        """Check the bounds and the order of the rungs."""
        for name, most in (
            ("renew_seconds", MAX_RENEW_SECONDS),
            ("grace_seconds", MAX_GRACE_SECONDS),
            ("toleration_seconds", MAX_TOLERATION_SECONDS),
        ):
            if not 0 < getattr(self, name) <= most:
                raise TimingInvalid(f"{name} must be above 0 and at most {most:g}, and {getattr(self, name):g} is not.")
        if self.grace_seconds < self.shortest_grace_seconds:
            raise TimingInvalid(
                f"grace_seconds ({self.grace_seconds:g}) must be at least 2 * renew_seconds + sweep_seconds "
                f"({self.shortest_grace_seconds:g}), or one late heartbeat would count as an absence. "
                "Raise grace_seconds or lower the others."
            )
        if not self.grace_seconds < self.self_stop_seconds:
            raise TimingInvalid(
                "grace_seconds < toleration_seconds - 2 * renew_seconds does not hold: "
                f"{self.grace_seconds:g} < {self.self_stop_seconds:g}. "
                "Raise toleration_seconds or lower the others."
            )
        if self.kill_after_seconds + 1 >= SELF_STOP_RENEWALS * self.renew_seconds:
            raise TimingInvalid(
                f"kill_after_seconds + 1 ({self.kill_after_seconds + 1:g}) must be below 2 * renew_seconds "
                f"({SELF_STOP_RENEWALS * self.renew_seconds:g}), or a job could outlive its lease. "
                "Lower kill_after_seconds."
            )

    def nearest(self, stored: Mapping[str, object]) -> "Timing":
        """Return the legal timing nearest to the rungs of a pool or a worker as they are stored, if necessary raised.

        They may have been stored under wider bounds or another `sweep_seconds`. What is no number is the service's.
        How long a kill takes is the worker's setting, which was checked when the rungs were set.
        """
        renew = _within(
            stored.get("renew_seconds"),
            min(MIN_POOL_RENEW_SECONDS, self.renew_seconds),
            MAX_RENEW_SECONDS,
            otherwise=self.renew_seconds,
        )
        shortest = GRACE_RENEWALS * renew + self.sweep_seconds
        grace = _within(stored.get("grace_seconds"), shortest, MAX_GRACE_SECONDS, otherwise=self.grace_seconds)
        toleration = _within(
            stored.get("toleration_seconds"), renew, MAX_TOLERATION_SECONDS, otherwise=self.toleration_seconds
        )
        if not grace < toleration - SELF_STOP_RENEWALS * renew:
            toleration = grace + SELF_STOP_RENEWALS * renew + 1.0
        return replace(
            self, renew_seconds=renew, grace_seconds=grace, toleration_seconds=toleration, kill_after_seconds=0.0
        )

    def or_shorter(self, other: "Timing") -> "Timing":
        """Return the timing of which each rung is the shorter one of both."""
        theirs = other.rungs
        return self.nearest({name: min(seconds, theirs[name]) for name, seconds in self.rungs.items()})

    @property
    def rungs(self) -> dict[str, float]:
        """The rungs that a pool may have of its own, as they are stored."""
        return {
            "renew_seconds": self.renew_seconds,
            "grace_seconds": self.grace_seconds,
            "toleration_seconds": self.toleration_seconds,
        }

    @property
    def shortest_grace_seconds(self) -> float:
        """Two heartbeats and a sweep: a shorter grace would end while its worker is heard as it should be."""
        return GRACE_RENEWALS * self.renew_seconds + self.sweep_seconds

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


def _within(value: object, least: float, most: float, *, otherwise: float) -> float:
    """Return `value` as far as the bounds let it; `otherwise` is for what is no number."""
    if not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN alone is not itself
        value = otherwise
    return float(min(max(value, least), most))
