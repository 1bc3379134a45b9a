"""Which bells to ring, in SQL: compare-and-set on `rung_at`, so that many ringers ring once (PROTOCOL 6)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from app.db.tables import Batch, Job, Lease, Worker
from app.domain.batches import CLAIMABLE
from app.domain.jobs import JobKind, JobState
from app.domain.leases import LIVE
from app.domain.workers import Transport, WorkerState

_CLAIMABLE = sorted(CLAIMABLE)
_LIVE = sorted(LIVE)


def set_batch_rung(session: Session, batch_id: str, *, now: datetime, rung_before: datetime) -> tuple[str, int] | None:
    """Note a ring of a batch that may be claimed and was not rung since `rung_before`; gives pool and ring number."""
    statement = (
        update(Batch)
        .where(
            col(Batch.id) == batch_id,
            col(Batch.state).in_(_CLAIMABLE),
            col(Batch.outcome).is_(None),
            or_(col(Batch.rung_at).is_(None), col(Batch.rung_at) <= rung_before),
        )
        .values(rung_at=now, ring_no=col(Batch.ring_no) + 1)
        .execution_options(synchronize_session=False)
        .returning(col(Batch.pool), col(Batch.ring_no))
    )
    row = session.execute(statement).first()
    return (row[0], row[1]) if row is not None else None


def set_control_rung(
    session: Session, batch_id: str, *, now: datetime, rung_before: datetime
) -> Sequence[tuple[int, int]]:
    """Note a ring of a batch's queued control work; gives job ids and ring numbers."""
    statement = (
        update(Job)
        .where(
            col(Job.batch_id) == batch_id,
            col(Job.kind) == JobKind.CONTROL,
            col(Job.state) == JobState.QUEUED,
            or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= now),
            or_(col(Job.rung_at).is_(None), col(Job.rung_at) <= rung_before),
        )
        .values(rung_at=now, ring_no=col(Job.ring_no) + 1)
        .execution_options(synchronize_session=False)
        .returning(col(Job.id), col(Job.ring_no))
    )
    return [(row[0], row[1]) for row in session.execute(statement)]


def silent_control(session: Session, *, now: datetime, rung_before: datetime, limit: int) -> Sequence[str]:
    """Name batches whose control work is queued, due, and was not rung since `rung_before`."""
    query = (
        select(Job.batch_id)
        .where(
            col(Job.kind) == JobKind.CONTROL,
            col(Job.state) == JobState.QUEUED,
            or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= now),
            or_(col(Job.rung_at).is_(None), col(Job.rung_at) <= rung_before),
        )
        .order_by(col(Job.id))
        .limit(limit)
    )
    return session.exec(query).all()


def pools_with_work(session: Session) -> Sequence[str]:
    """Name pools that have a batch which may be claimed."""
    query = select(Batch.pool).where(col(Batch.state).in_(_CLAIMABLE), col(Batch.outcome).is_(None)).distinct()
    return session.exec(query).all()


def nodes_of_pool(session: Session, pool: str) -> Sequence[str]:
    """Name the Celery nodes of the workers of a pool that are there."""
    query = select(Worker.name, Worker.hostname).where(
        col(Worker.pool) == pool,
        col(Worker.state) != WorkerState.GONE,
        col(Worker.offline_at).is_(None),
        col(Worker.looked_at).is_not(None),  # an older one does not know the command
        col(Worker.transport) == Transport.CELERY,
    )
    return [f"{name}@{hostname}" for name, hostname in session.exec(query).all()]


def nodes_of_batch(session: Session, batch_id: str) -> Sequence[str]:
    """Name the Celery nodes of the workers that hold live leases of a batch."""
    query = (
        select(Worker.name, Worker.hostname)
        .join(Lease, col(Lease.worker_id) == col(Worker.id))
        .where(col(Lease.batch_id) == batch_id, col(Lease.state).in_(_LIVE), col(Worker.transport) == Transport.CELERY)
        .distinct()
    )
    return [f"{name}@{hostname}" for name, hostname in session.exec(query).all()]
