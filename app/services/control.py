"""Control work is work: validating, finalizing and telling webhooks are jobs, leased like any other (PROTOCOL 6).

A control worker has a worker row with transport `control`; it claims, renews and reports by these functions in process.
A small input is read first and leased then: its lease begins and ends in the transaction that stores what was found.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlmodel import Session

from app.db import jobs as jobs_sql
from app.db import locks
from app.db import webhooks as webhooks_sql
from app.db.jobs import DueControl
from app.db.tables import Batch, Job, Lease
from app.domain.jobs import UNCOUNTED, ControlVerb, LeaseEnd
from app.domain.leases import LIVE
from app.domain.rows import RowErrorCode
from app.services import deliveries, finalizing, missing, validating
from app.services.context import BatchRing, Yard
from app.services.eligibility import told
from app.services.endings import Ending, end_locked
from app.services.grants import grant
from app.services.leases import ring_after

QUEUE = "control"
SMALL_BYTES = 64 * 1024
"""An input of so many bytes is read in a few milliseconds: a lease for that time would cost as much again."""


CLAIM_TRIES = 8
"""A claim that lost its endpoint to another control worker looks for another delivery so often."""


@dataclass(frozen=True, slots=True)
class ControlGrant:
    """A piece of control work, leased."""

    lease_id: int
    job_id: int
    verb: ControlVerb
    batch_id: str
    org_id: str


class _EndpointBusy(Exception):
    """Another control worker was quicker with another delivery to the same endpoint."""


_PERFORM: Mapping[ControlVerb, Callable[[Yard, int, str], Batch | None]] = {
    ControlVerb.VALIDATE: validating.validate,
    ControlVerb.FINALIZE: finalizing.finalize,
    ControlVerb.DELIVER: deliveries.deliver,
}
_Take = Callable[[Session, datetime], Job | None]
"""Locks a job that is due, or gives None."""


def due(yard: Yard) -> DueControl | None:
    """Give the oldest piece of a batch's own control work that is due, without locking it; None when there is none."""
    with yard.store.read() as session:
        return jobs_sql.due_control(session, yard.store.now(session))


def is_small(work: DueControl) -> bool:
    """Tell whether `validate_at_once` is the way for a piece of control work."""
    return work.verb == ControlVerb.VALIDATE and work.input_bytes <= SMALL_BYTES


def validate_at_once(yard: Yard, worker_id: str, work: DueControl, request_id: str) -> bool:
    """Validate a batch whose input is small, in one transaction that leases the work, stores its end and notes a ring.

    The input is read before, without a lease: reading changes nothing, and of two that read it one stores what it
    found. False when another was quicker, or the batch was told to end. Raises BlobError when it cannot be read now.
    """
    judged = validating.read(yard, work.batch_id)

    def conclude(session: Session) -> tuple[Batch | None, BatchRing | None]:
        now = yard.store.now(session)
        take = partial(jobs_sql.take_control, job_id=work.job_id)
        leased = _lease(session, yard, worker_id, request_id, now, take)
        if leased is None:
            return None, None
        # What is written only now, at once, would otherwise be written at each step on the way.
        with session.no_autoflush:
            return leased[2], validating.conclude(session, yard, *leased, judged, now)

    batch, ring = yard.store.run(conclude)
    if ring is not None:
        yard.bells.publish(ring)
    else:
        ring_after(yard, batch, work.batch_id)
    return batch is not None


def claim_control(yard: Yard, worker_id: str, request_id: str) -> ControlGrant | None:
    """Lease the oldest piece of a batch's own control work that is due; None when there is none."""
    return _claim(yard, worker_id, request_id, jobs_sql.take_control)


def claim_delivery(
    yard: Yard, worker_id: str, request_id: str, *, but_orgs: Collection[str] = ()
) -> ControlGrant | None:
    """Lease a webhook's delivery that is due, of no org of `but_orgs`; None when there is none.

    It never takes the place of other work. Most bells mean none, so it is looked for before anything is locked: a
    batch's own work is claimed at that moment.
    """
    with yard.store.read() as session:
        if not webhooks_sql.delivery_is_due(session, yard.store.now(session)):
            return None
    take = partial(webhooks_sql.take_delivery, but_orgs=but_orgs)
    for _ in range(CLAIM_TRIES):
        with suppress(_EndpointBusy):
            return _claim(yard, worker_id, request_id, take)
    return None


def _claim(yard: Yard, worker_id: str, request_id: str, take: _Take) -> ControlGrant | None:
    def work(session: Session) -> ControlGrant | None:
        leased = _lease(session, yard, worker_id, request_id, yard.store.now(session), take)
        if leased is None:
            return None
        lease, job, batch = leased
        return ControlGrant(lease.id or 0, job.id or 0, ControlVerb(job.verb), batch.id, batch.org_id)

    return yard.store.run(work)


def _lease(
    session: Session, yard: Yard, worker_id: str, request_id: str, now: datetime, take: _Take
) -> tuple[Lease, Job, Batch] | None:
    """Lease the piece of control work that `take` locks; gives what is locked then. Raises _EndpointBusy."""
    worker = locks.worker(session, worker_id)
    job = take(session, now)
    if worker is None or job is None or job.id is None:
        return None
    verb = ControlVerb(job.verb)
    batch = locks.batch(session, job.batch_id)
    if batch is None:
        raise LookupError(f"job {job.id} of no batch")
    if verb not in UNCOUNTED and batch.outcome is not None:
        return None  # told to end between the two locks: whoever told it cancels the job
    if job.endpoint_id is not None and not webhooks_sql.lock_if_idle(session, job.endpoint_id):
        raise _EndpointBusy
    (lease,) = grant(
        session,
        [job],
        worker,
        request_id=request_id,
        now=now,
        expires_at=told(worker, yard.timing).lease_end(now),
        subject=job.endpoint_id or job.batch_id,
        org_id=batch.org_id,
        data={"verb": verb.value},
    )
    if verb not in UNCOUNTED:
        batch.live += 1
        session.add(batch)
    return lease, job, batch


def perform(yard: Yard, grant: ControlGrant) -> None:
    """Do a piece of control work and report its end in the transaction that stores what came of it.

    Raises what kept it from being done (a full disk, a missing blob); the caller then calls `put_off`.
    """
    batch = _PERFORM[grant.verb](yard, grant.lease_id, grant.batch_id)
    if batch is not None:
        ring_after(yard, batch, grant.batch_id)


def put_off(yard: Yard, grant: ControlGrant, error: Exception) -> None:
    """Report that control work failed: it is tried again with a growing pause, and keeps nobody else waiting.

    Its batch says which content it waits for.
    """
    reason = f"{type(error).__name__}: {error}"[:2000]

    def work(session: Session) -> Batch | None:
        lease = locks.leases(session, [grant.lease_id]).get(grant.lease_id)
        if lease is None or lease.state not in LIVE:
            return None
        held = locks.jobs(session, [lease.job_id])
        batch = locks.batch(session, lease.batch_id)
        if batch is None:
            raise LookupError(f"batch {lease.batch_id} of a live lease is gone")
        if grant.verb is not ControlVerb.DELIVER:
            batch.waiting_reason = missing.note(held[lease.job_id], error)
        ending = Ending(lease, LeaseEnd.FAILED, (RowErrorCode.INTERNAL_ERROR, reason))
        now = yard.store.now(session)
        actor = f"worker:{lease.worker_id}"
        end_locked(session, [ending], held, batch, now=now, limits=yard.limits, max_losses=None, actor=actor)
        return batch

    ring_after(yard, yard.store.run(work), grant.batch_id)
