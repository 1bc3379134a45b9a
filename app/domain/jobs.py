"""Jobs: what is leased. A batch's shard, or a piece of control work such as validating a file (DESIGN 4, 6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

MAX_SHARD_ROWS = 4096
"""A shard that finished every other row must still fit the set of rows that a hand-in carries."""


class JobKind(StrEnum):
    """What a job is; control work is leased like any other (PROTOCOL 6)."""

    SHARD = "shard"
    CONTROL = "control"


class ControlVerb(StrEnum):
    """What a control job does to its batch."""

    VALIDATE = "validate"
    FINALIZE = "finalize"
    DELIVER = "deliver"
    """Tell a webhook endpoint that the batch has ended."""


OF_BATCH = (ControlVerb.VALIDATE, ControlVerb.FINALIZE)
"""Control work that a batch goes on by. Telling others of its end is done by threads of its own."""
UNCOUNTED = frozenset({ControlVerb.FINALIZE, ControlVerb.DELIVER})
"""Control work that begins when no other job of its batch is open: a batch's counters and its end leave it out."""


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = JobState
TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    S.QUEUED: frozenset({S.LEASED, S.CANCELLED}),
    S.LEASED: frozenset({S.DONE, S.FAILED, S.CANCELLED, S.QUEUED}),
    S.DONE: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
}
ENDED = frozenset(state for state, after in TRANSITIONS.items() if not after)

MAX_ATTEMPTS = 3
"""Executions in all before a shard's open rows fail with the reported reason (R-21)."""

MAX_LOSSES = 5
"""Lost workers before a shard's open rows fail with `worker_lost` (R-04); a pool may set its own."""

CAUTIOUS_LOSSES = 3
"""Lost workers before a shard is run alone and row by row, to find the row that ends them (PROTOCOL 5)."""


class LeaseEnd(StrEnum):
    """How a worker's hold on a job ended, as far as the job is concerned. Grouped by who says so."""

    # the worker
    DONE = "done"
    FAILED = "failed"
    RELEASED = "released"
    # the control plane
    LOST = "lost"
    GHOST = "ghost"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Tally:
    """What a job has been through: `attempts` failures reported by workers, `losses` workers lost (R-04)."""

    attempts: int
    losses: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a job whose lease ended. `row_lost`: the row that was running fails with `worker_lost`."""

    state: JobState
    tally: Tally
    row_lost: bool = False


def goes_elsewhere(end: LeaseEnd, losses: int) -> bool:
    """Tell whether another worker is the better next one: after a failure, and from the second loss on.

    One loss may be a mere restart, and who was started again has its hands free while the others work.
    """
    return end is LeaseEnd.FAILED or (end is LeaseEnd.LOST and losses > 1)


def is_cautious(losses: int, max_losses: int) -> bool:
    """Tell whether a shard of so many losses is to run row by row: from the third, or for the last worker it may lose.

    With `max_losses` 1 there is no such worker: the first loss fails the shard.
    """
    return losses >= min(CAUTIOUS_LOSSES, max(1, max_losses - 1))


def after_lease(
    end: LeaseEnd,
    tally: Tally,
    *,
    batch_stops: bool,
    max_attempts: int | None = MAX_ATTEMPTS,
    max_losses: int | None = MAX_LOSSES,
    row_running: bool = False,
) -> Verdict:
    """Decide what a leased job becomes when its lease ends as `end`.

    A release, a ghost and a revocation cost nothing; a failure counts as an attempt, a loss as a loss. A job of a batch
    that was told to stop is never queued again. None is no bound: control work is tried for as long as its batch lives.
    `row_running`: it ran row by row, and one was running. A loss then costs that row, and losses start again.
    Source: R-04, R-21, PROTOCOL 1.
    """
    if end is LeaseEnd.DONE:
        return Verdict(S.DONE, tally)
    if end is LeaseEnd.FAILED:
        tally = Tally(tally.attempts + 1, tally.losses)
    elif end is LeaseEnd.LOST and row_running and not batch_stops:
        return Verdict(S.QUEUED, Tally(tally.attempts, 0), row_lost=True)
    elif end is LeaseEnd.LOST:
        tally = Tally(tally.attempts, tally.losses + 1)
    if batch_stops:
        return Verdict(S.CANCELLED, tally)
    spent = (max_attempts is not None and tally.attempts >= max_attempts) or (
        max_losses is not None and tally.losses >= max_losses
    )
    return Verdict(S.FAILED if spent else S.QUEUED, tally)
