"""Batches: the states, who may follow whom, and what the OpenAI wire shows of them (DESIGN 6, OPENAI_CONTRACT 1.7)."""

from collections.abc import Mapping
from enum import StrEnum


class BatchState(StrEnum):
    """Where a batch stands. `stopping` is no state: it is an outcome other than completed before `finalizing`."""

    VALIDATING = "validating"
    VALIDATED = "validated"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Outcome(StrEnum):
    """How a batch ends once it could have run. Set once, by compare-and-set; a failed validation has none."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    """Its first rows all failed alike, so that the others were not run."""


TOLD_TO_END = frozenset({Outcome.CANCELLED, Outcome.EXPIRED, Outcome.FAILED})
"""Outcomes that are decided while there is work left."""

S = BatchState
TRANSITIONS: Mapping[BatchState, frozenset[BatchState]] = {
    S.VALIDATING: frozenset({S.VALIDATED, S.FAILED, S.FINALIZING}),
    S.VALIDATED: frozenset({S.IN_PROGRESS, S.FINALIZING}),
    S.IN_PROGRESS: frozenset({S.VALIDATED, S.FINALIZING}),
    S.FINALIZING: frozenset({S.COMPLETED, S.CANCELLED, S.EXPIRED, S.FAILED}),
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
    S.EXPIRED: frozenset(),
}
ENDED = frozenset(state for state, after in TRANSITIONS.items() if not after)
STOPPABLE = frozenset({S.VALIDATING, S.VALIDATED, S.IN_PROGRESS})
CLAIMABLE = frozenset({S.VALIDATED, S.IN_PROGRESS})


def wire_status(state: BatchState, outcome: Outcome | None) -> str:
    """Give one of OpenAI's eight statuses.

    A cancel reads `cancelling` until the batch has ended; an expiry, or a stop for its first rows, reads
    `in_progress` until its files are written, because OpenAI has no word for it (DESIGN 6).
    """
    if state in ENDED:
        return state.value
    if outcome is Outcome.CANCELLED:
        return "cancelling"
    if outcome in {Outcome.EXPIRED, Outcome.FAILED}:
        return "validating" if state is S.VALIDATING else "in_progress"
    return "in_progress" if state in CLAIMABLE else state.value


def inner_state(state: BatchState, outcome: Outcome | None) -> str:
    """Give the state in gpuyard's own words, with `stopping` for a batch that was told to end and has work out."""
    stopping = state in STOPPABLE and outcome in TOLD_TO_END
    return "stopping" if stopping else state.value


def settle(
    state: BatchState, outcome: Outcome | None, *, open_jobs: int, live: int
) -> tuple[BatchState, Outcome | None]:
    """Give state and outcome after jobs or leases of a batch have ended.

    `open_jobs` counts jobs that have not ended, `live` the live leases on them. With neither left the batch is to be
    finalized, as completed unless something else was decided before. With nothing leased it waits again (R-21).
    """
    if state not in STOPPABLE:
        return state, outcome
    if open_jobs == 0 and live == 0:
        return S.FINALIZING, outcome or Outcome.COMPLETED
    if state is S.IN_PROGRESS and live == 0 and outcome is None:
        return S.VALIDATED, outcome
    return state, outcome
