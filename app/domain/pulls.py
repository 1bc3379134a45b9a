"""Pulls: a runtime fetches a model that it lacks, and tells how far it is (A-06, B-28)."""

from dataclasses import dataclass
from enum import StrEnum


class PullStatus(StrEnum):
    """How a pull stands."""

    PULLING = "pulling"
    PULLED = "pulled"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Pull:
    """How far one pull is. `number` counts the pulls of a worker's process from 1, sizes are bytes, 0: not known yet.

    `error` is the runtime's reason of a failure.
    """

    number: int
    runtime: str
    model: str
    status: PullStatus = PullStatus.PULLING
    completed: int = 0
    total: int = 0
    error: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing of it will change any more."""
        return self.status is not PullStatus.PULLING


def after(known: Pull | None, told: Pull) -> Pull | None:
    """Give what is known of a pull once `told` has come; None when it brings nothing new.

    Reports come late, twice and in any order: bytes only grow, and an end is the last word.
    """
    if known is None:
        return told
    if known.ended:
        return None
    found = Pull(
        number=known.number,
        runtime=known.runtime,
        model=known.model,
        status=told.status,
        completed=max(known.completed, told.completed),
        total=max(known.total, told.total),
        error=told.error,
    )
    return found if found != known else None
