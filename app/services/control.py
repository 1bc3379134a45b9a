"""Control work is work: validating, finalizing and telling webhooks are jobs, leased like any other (PROTOCOL 6).

A control worker has a worker row with transport `control`; it claims, renews and reports by these functions in process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from app.db import events, locks
from app.db import jobs as jobs_sql
from app.db import webhooks as webhooks_sql
from app.db.tables import Batch, Job, Lease
from app.domain.jobs import UNCOUNTED, ControlVerb, JobState, LeaseEnd
from app.domain.leases import LIVE
from app.domain.rows import RowErrorCode
from app.services import deliveries, finalizing, validating
from app.services.context import Yard
from app.services.endings import Ending, end_leases
from app.services.leases import ring_after
from app.services.moves import move_job

QUEUE = "control"


@dataclass(frozen=True, slots=True)
class ControlGrant:
    """A piece of control work, leased."""

    lease_id: int
    job_id: int
    verb: ControlVerb
    batch_id: str


_PERFORM: Mapping[ControlVerb, Callable[[Yard, int, str], Batch | None]] = {
    ControlVerb.VALIDATE: validating.validate,
    ControlVerb.FINALIZE: finalizing.finalize,
    ControlVerb.DELIVER: deliveries.deliver,
}


def claim_control(yard: Yard, worker_id: str, request_id: str) -> ControlGrant | None:
    """Lease the oldest piece of a batch's own control work that is due; None when there is none."""
    return _claim(yard, worker_id, request_id, jobs_sql.take_control)


def claim_delivery(yard: Yard, worker_id: str, request_id: str) -> ControlGrant | None:
    """Lease a webhook's delivery that is due; None when there is none. It never takes the place of other work."""
    return _claim(yard, worker_id, request_id, webhooks_sql.take_delivery)


def _claim(
    yard: Yard, worker_id: str, request_id: str, take: Callable[[Session, datetime], Job | None]
) -> ControlGrant | None:
    def work(session: Session) -> ControlGrant | None:
        worker = locks.worker(session, worker_id)
        now = yard.store.now(session)
        job = take(session, now)
        if worker is None or job is None or job.id is None:
            return None
        verb = ControlVerb(job.verb)
        batch = locks.batch(session, job.batch_id)
        if batch is None:
            raise LookupError(f"job {job.id} of no batch")
        if verb not in UNCOUNTED and batch.outcome is not None:
            return None  # told to end between the two locks: whoever told it cancels the job
        lease = Lease(
            job_id=job.id,
            batch_id=job.batch_id,
            worker_id=worker_id,
            claim_request=request_id,
            granted_at=now,
            renewed_at=now,
            expires_at=yard.timing.lease_end(now),
        )
        move_job(session, job, JobState.LEASED, now=now)
        session.add(lease)
        if verb not in UNCOUNTED:
            batch.live += 1
            session.add(batch)
        session.flush()
        events.record(
            session,
            now=now,
            type="lease.granted",
            subject=job.endpoint_id or job.batch_id,
            actor=f"worker:{worker_id}",
            org_id=batch.org_id,
            data={"leases": [lease.id], "jobs": [job.id], "worker": worker.name, "verb": verb.value},
        )
        return ControlGrant(lease.id or 0, job.id, verb, job.batch_id)

    return yard.store.run(work)


def perform(yard: Yard, grant: ControlGrant) -> None:
    """Do a piece of control work and report its end in the transaction that stores what came of it.

    Raises what kept it from being done (a full disk, a missing blob); the caller then calls `put_off`.
    """
    batch = _PERFORM[grant.verb](yard, grant.lease_id, grant.batch_id)
    if batch is not None:
        ring_after(yard, batch, grant.batch_id)


def put_off(yard: Yard, grant: ControlGrant, reason: str) -> None:
    """Report that control work failed: it is tried again with a growing pause, and keeps nobody else waiting."""

    def work(session: Session) -> Batch | None:
        lease = locks.leases(session, [grant.lease_id]).get(grant.lease_id)
        if lease is None or lease.state not in LIVE:
            return None
        ending = Ending(lease, LeaseEnd.FAILED, (RowErrorCode.INTERNAL_ERROR, reason[:2000]))
        now = yard.store.now(session)
        actor = f"worker:{lease.worker_id}"
        return end_leases(session, [ending], now=now, limits=yard.limits, max_losses=None, actor=actor)

    ring_after(yard, yard.store.run(work), grant.batch_id)
