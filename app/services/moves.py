"""The one way a batch or a job changes its state, with its time stamp in the same transaction (DESIGN 6).

A batch's move writes its event; a job's has the event of the lease or the stop that moves it. The one move that is
elsewhere is a claim's, whose last statement takes its batch to `in_progress` (app.db.claims.count_live).
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import structlog
from sqlmodel import Session

from app.db import events
from app.db import webhooks as webhooks_sql
from app.db.tables import Batch, Job
from app.domain import batches, jobs
from app.domain.batches import TOLD_TO_END, TRANSITIONS, BatchState, Outcome
from app.domain.jobs import ControlVerb, JobKind, JobState
from app.domain.webhooks import event_type

_STAMP: Mapping[BatchState, str] = {
    BatchState.VALIDATED: "validated_at",
    BatchState.FINALIZING: "finalizing_at",
    BatchState.COMPLETED: "completed_at",
    BatchState.FAILED: "failed_at",
    BatchState.EXPIRED: "expired_at",
    BatchState.CANCELLED: "cancelled_at",
}

_Key = TypeVar("_Key", str, int)
log = structlog.get_logger("gpuyard.moves")


class ForbiddenMove(RuntimeError):
    """Somebody asked for a transition that the domain's table does not list: a bug of ours, never of a caller."""


def one_by_one(keys: Iterable[_Key], do: Callable[[_Key], object]) -> int:
    """Call `do` for each key, and count the calls that gave something true.

    What a defect has put where it cannot be moved is logged, and keeps none of the others waiting: a sweep meets it
    first each time. Anything else (a database that is away) is raised.
    """
    done = 0
    for key in keys:
        try:
            done += bool(do(key))
        except (ForbiddenMove, LookupError):
            log.exception("move.failed", key=key)
    return done


def outcome_of(batch: Batch) -> Outcome | None:
    """Read a batch's outcome as the domain's value."""
    return Outcome(batch.outcome) if batch.outcome is not None else None


def stopping(batch: Batch) -> bool:
    """Tell whether a batch was told to end before its work was done."""
    return batch.outcome in TOLD_TO_END


def move(
    session: Session, batch: Batch, state: BatchState, *, now: datetime, actor: str, data: dict[str, Any] | None = None
) -> None:
    """Move a locked batch to `state`. Each time stamp is set once, at the first transition of its name.

    Moving to `finalizing` queues the control work that writes its files, an end what tells webhook endpoints of it.
    Raises ForbiddenMove.
    """
    before = BatchState(batch.state)
    if state not in TRANSITIONS[before]:
        raise ForbiddenMove(f"batch {batch.id}: {before} -> {state}")
    batch.state = state
    stamp = _STAMP.get(state)
    if stamp is not None and getattr(batch, stamp) is None:
        setattr(batch, stamp, now)
    batch.waiting_reason = None
    if state is BatchState.VALIDATED and batch.in_progress_at is None:
        batch.in_progress_at = now
    if state in batches.ENDED:
        batch.ended_at = now
    session.add(batch)
    if (told := event_type(state)) is not None:
        _tell_endpoints(session, batch, told, now=now)
    if state is BatchState.FINALIZING:
        session.add(Job(kind=JobKind.CONTROL, verb=ControlVerb.FINALIZE, batch_id=batch.id, created_at=now))
    events.record(
        session,
        now=now,
        type=f"batch.{state.value}",
        subject=batch.id,
        actor=actor,
        org_id=batch.org_id,
        data={"from": before.value, **(data or {})},
    )


def _tell_endpoints(session: Session, batch: Batch, event: str, *, now: datetime) -> None:
    """Queue a delivery to each endpoint that wants to hear of this end; the batch waits for none of them."""
    for number, endpoint_id in enumerate(webhooks_sql.listening(session, batch.org_id, event)):
        session.add(
            Job(
                kind=JobKind.CONTROL,
                verb=ControlVerb.DELIVER,
                batch_id=batch.id,
                endpoint_id=endpoint_id,
                number=number,
                created_at=now,
            )
        )


def settle(session: Session, batch: Batch, *, now: datetime, actor: str) -> None:
    """Move a locked batch on when its jobs or leases have ended (app.domain.batches.settle)."""
    state, outcome = batches.settle(
        BatchState(batch.state), outcome_of(batch), open_jobs=batch.open_jobs, live=batch.live
    )
    batch.outcome = outcome
    session.add(batch)
    if state != batch.state:
        move(session, batch, state, now=now, actor=actor, data={"outcome": outcome})


def move_job(session: Session, job: Job, state: JobState, *, now: datetime) -> None:
    """Move a locked job to `state`; one that has ended is cautious no more. Raises ForbiddenMove."""
    before = JobState(job.state)
    if state not in jobs.TRANSITIONS[before]:
        raise ForbiddenMove(f"job {job.id}: {before} -> {state}")
    job.state = state
    if state in jobs.ENDED:
        job.ended_at = now
        job.cautious_at = job.cautious_worker_id = None
    session.add(job)
