"""The one way a lease ends: lease, job and batch move together, in lock order, with their events (PROTOCOL 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlmodel import Session

from app.db import events, locks
from app.db.tables import Batch, Job, Lease
from app.domain import jobs, webhooks
from app.domain.jobs import UNCOUNTED, ControlVerb, JobKind, JobState, LeaseEnd, Tally
from app.domain.leases import LIVE, LeaseState
from app.domain.leases import TRANSITIONS as LEASE_TRANSITIONS
from app.domain.rows import RowErrorCode
from app.services.context import Limits
from app.services.moves import ForbiddenMove, move_job, settle, stopping

_LEASE_STATE: Mapping[LeaseEnd, LeaseState] = {
    LeaseEnd.DONE: LeaseState.REPORTED,
    LeaseEnd.FAILED: LeaseState.REPORTED,
    LeaseEnd.RELEASED: LeaseState.RELEASED,
    LeaseEnd.GHOST: LeaseState.RELEASED,
    LeaseEnd.LOST: LeaseState.EXPIRED,
    LeaseEnd.REVOKED: LeaseState.REVOKED,
}
_RETRY_MAX_SECONDS = 60
_INPUT_RETRY_SECONDS = 5.0
log = structlog.get_logger("gpuyard.leases")


@dataclass(frozen=True, slots=True)
class Ending:
    """One lease's end. The lease is locked. `error` is what a failure or a loss leaves on the job.

    `dropped`: nobody wants the job any more, so it is cancelled where it would be queued again. `final`: no other try
    of it would end otherwise.
    """

    lease: Lease
    end: LeaseEnd
    error: tuple[RowErrorCode, str] | None = None
    dropped: bool = False
    final: bool = False


def silenced(lease: Lease) -> LeaseEnd:
    """Say how a lease ends whose worker fell silent or forgot it: a stopping one is revoked, a held one is lost."""
    return LeaseEnd.REVOKED if lease.state == LeaseState.STOPPING else LeaseEnd.LOST


def end_leases(
    session: Session, endings: Sequence[Ending], *, now: datetime, limits: Limits, max_losses: int | None, actor: str
) -> Batch | None:
    """Lock jobs and batch of live leases of one batch, and end them (`end_locked`); None when `endings` is empty."""
    if not endings:
        return None
    held = locks.jobs(session, [ending.lease.job_id for ending in endings])
    batch = locks.batch(session, endings[0].lease.batch_id)
    if batch is None:
        raise LookupError(f"batch {endings[0].lease.batch_id} of a live lease is gone")
    end_locked(session, endings, held, batch, now=now, limits=limits, max_losses=max_losses, actor=actor)
    return batch


def end_locked(
    session: Session,
    endings: Sequence[Ending],
    held: Mapping[int, Job],
    batch: Batch,
    *,
    now: datetime,
    limits: Limits,
    max_losses: int | None,
    actor: str,
) -> None:
    """End live leases of one batch, whose jobs and batch are locked.

    `max_losses` is the pool's own bound, None for the service's. Jobs go back to the queue or end
    (app.domain.jobs.after_lease), the batch's counters follow, and it moves on when its last open job has ended.
    """
    for ending in endings:
        job = held[ending.lease.job_id]
        if job.state != JobState.LEASED:
            raise ForbiddenMove(f"job {job.id} of a live lease is {job.state}")
        losses_bound = (max_losses or limits.max_losses) if job.kind != JobKind.CONTROL else None
        verdict = jobs.after_lease(
            _cost(ending),
            Tally(job.attempts, job.losses),
            batch_stops=ending.dropped or (stopping(batch) and job.verb not in UNCOUNTED),
            max_attempts=1 if ending.final else _attempts_bound(job, limits),
            max_losses=losses_bound,
            row_running=_row_running(job, ending.lease) is not None,
        )
        _end_lease(session, ending, subject=job.endpoint_id or batch.id, now=now, actor=actor, org_id=batch.org_id)
        _end_job(session, job, verdict, ending, now=now)
        change = _caution(job, verdict, ending, losses_bound, now=now)
        if change is not None:
            type_, data = change
            events.record(session, now=now, type=type_, subject=batch.id, actor=actor, org_id=batch.org_id, data=data)
        if job.verb not in UNCOUNTED:
            batch.live -= 1
            batch.open_jobs -= verdict.state in jobs.ENDED
    settle(session, batch, now=now, actor=actor)


def _attempts_bound(job: Job, limits: Limits) -> int | None:
    """Give how many failures a job may report; what a batch goes on by is tried for as long as it lives."""
    if job.verb == ControlVerb.DELIVER:
        return limits.webhook_max_tries
    return limits.max_attempts if job.kind != JobKind.CONTROL else None


def _cost(ending: Ending) -> LeaseEnd:
    """A worker that died with a shard it had not begun was not killed by it (PROTOCOL 5).

    A beat that was listed before a row was named may come after it: the name counts.
    """
    unstarted = ending.lease.unstarted and ending.lease.running_row is None
    return LeaseEnd.RELEASED if ending.end is LeaseEnd.LOST and unstarted else ending.end


def _row_running(job: Job, lease: Lease) -> int | None:
    """Give the row that a cautious shard's worker was running; a hand-in of it takes its name back."""
    return lease.running_row if job.cautious_at is not None else None


def _caution(
    job: Job, verdict: jobs.Verdict, ending: Ending, max_losses: int | None, *, now: datetime
) -> tuple[str, dict[str, object]] | None:
    """Have a queued shard run cautiously, or no more; gives the event that says so."""
    job.cautious_worker_id = None
    if verdict.state is not JobState.QUEUED or max_losses is None:
        return None
    data: dict[str, object] = {"job": job.id, "number": job.number}
    row = _row_running(job, ending.lease)
    if verdict.row_lost and row is not None:
        # Answered without being run from now on: whoever runs the shard next hands its line in, by the one fenced way.
        job.rejected = [*job.rejected, [row, RowErrorCode.WORKER_LOST.value, job.error_message or ""]]
        job.cautious_at = None
        return "job.row_lost", {**data, "row": row, "worker": ending.lease.worker_id}
    if job.cautious_at is None and jobs.is_cautious(job.losses, max_losses):
        job.cautious_at = now
        return "job.cautious", {**data, "losses": job.losses}
    return None


def _end_lease(session: Session, ending: Ending, *, subject: str, now: datetime, actor: str, org_id: str) -> None:
    lease, state = ending.lease, _LEASE_STATE[ending.end]
    before = LeaseState(lease.state)
    if before not in LIVE or state not in LEASE_TRANSITIONS[before]:
        raise ForbiddenMove(f"lease {lease.id}: {before} -> {state}")
    lease.state = state
    lease.ended_at = now
    session.add(lease)
    data = {"job": lease.job_id, "worker": lease.worker_id, "end": ending.end.value}
    tell = log.info if ending.end in {LeaseEnd.LOST, LeaseEnd.REVOKED, LeaseEnd.FAILED} else log.debug
    tell("lease_ended", lease_id=lease.id, job_id=lease.job_id, batch_id=lease.batch_id, end=ending.end.value)
    if ending.error is not None:
        data["error"] = f"{ending.error[0].value}: {ending.error[1]}"
    events.record(
        session,
        now=now,
        type=f"lease.{state.value}",
        subject=subject,
        actor=actor,
        org_id=org_id,
        data={"lease": lease.id, **data},
    )


def _end_job(session: Session, job: Job, verdict: jobs.Verdict, ending: Ending, *, now: datetime) -> None:
    move_job(session, job, verdict.state, now=now)
    job.attempts, job.losses = verdict.tally.attempts, verdict.tally.losses
    cost = _cost(ending)
    if jobs.goes_elsewhere(cost, verdict.tally.losses):
        job.last_worker_id = ending.lease.worker_id
    if cost in {LeaseEnd.FAILED, LeaseEnd.LOST}:
        code, message = ending.error or (RowErrorCode.WORKER_LOST, "the worker that ran this row was lost")
        job.error_code, job.error_message = code.value, message
    if verdict.state is JobState.QUEUED and ending.end is LeaseEnd.FAILED:
        pause = _pause_seconds(job)
        job.not_before_at = now + timedelta(seconds=pause) if pause else None
    if verdict.state is JobState.FAILED:
        # its open rows fail with the reason above; the finalizer writes their lines
        job.failed += job.rows - job.completed - job.failed


def _pause_seconds(job: Job) -> float:
    """Give how long a failed job waits before it is tried again.

    A shard whose input is gone or differs waits 10 s and then 20 s: a network file system may be late. Any other shard
    does not wait.
    """
    if job.kind == JobKind.SHARD:
        return _doubling(job, _INPUT_RETRY_SECONDS) if job.error_code == RowErrorCode.INPUT_DAMAGED else 0.0
    if job.verb == ControlVerb.DELIVER:
        return webhooks.pause_seconds(job.attempts)
    return _doubling(job, 1.0)


def _doubling(job: Job, first_seconds: float) -> float:
    """Give a pause that doubles with each attempt, of which there may be thousands while a store is away."""
    return min(first_seconds * 2.0 ** min(job.attempts, 10), _RETRY_MAX_SECONDS)
