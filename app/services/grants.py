"""Granting: jobs that are locked and queued become leases of a worker, with one event (PROTOCOL 1)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.db import events
from app.db.tables import Job, Lease, Worker
from app.domain.jobs import JobKind, JobState
from app.domain.workers import Transport
from app.services.moves import ForbiddenMove, move_job


def grant(
    session: Session,
    jobs: Sequence[Job],
    worker: Worker,
    *,
    request_id: str,
    now: datetime,
    expires_at: datetime,
    subject: str,
    org_id: str,
    data: dict[str, Any] | None = None,
) -> list[Lease]:
    """Lease locked jobs of one batch to a worker until `expires_at`; gives the leases in the order of the jobs.

    Counting them on the batch is the caller's, and comes last. Raises ForbiddenMove, also for control work that would
    go to a GPU worker and for a shard that would go to a control worker: who may call for a worker may end its leases.
    """
    if any((job.kind == JobKind.CONTROL) != (worker.transport == Transport.CONTROL) for job in jobs):
        raise ForbiddenMove(f"a job of this kind is not for a worker with transport {worker.transport}")
    leases = [
        Lease(
            job_id=job.id or 0,
            batch_id=job.batch_id,
            worker_id=worker.id,
            claim_request=request_id,
            granted_at=now,
            renewed_at=now,
            expires_at=expires_at,
        )
        for job in jobs
    ]
    session.add_all(leases)
    session.flush()  # for their ids, before there is anything else to write
    for job in jobs:
        move_job(session, job, JobState.LEASED, now=now)
    told = {"leases": [lease.id for lease in leases], "jobs": [job.id for job in jobs], "worker": worker.name}
    events.record(
        session,
        now=now,
        type="lease.granted",
        subject=subject,
        actor=f"worker:{worker.id}",
        org_id=org_id,
        data=told | (data or {}),
    )
    return leases
