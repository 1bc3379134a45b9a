"""Cautious shards in SQL: those that lost so many workers that they run alone and row by row (PROTOCOL 5).

There are hardly ever any, and a partial index holds them alone, so each claim may ask.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, or_
from sqlmodel import Session, col, select

from app.db.batches import WITHOUT_LISTS
from app.db.tables import Batch, Job, Lease, Worker
from app.domain.batches import CLAIMABLE
from app.domain.jobs import JobState
from app.domain.leases import LIVE
from app.domain.workers import WorkerState

WINDOW = 64
_LIVE = sorted(LIVE)
_CLAIMABLE = sorted(CLAIMABLE)
_ARE_THERE = select(Job.id).where(col(Job.cautious_at).is_not(None)).limit(1)
"""Asked by every claim, so built once."""


class CautiousShard(NamedTuple):
    """A cautious shard that waits for a worker, as people are told of it. `worker`: who was chosen for it."""

    number: int
    worker: str | None


def _queued(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Job.cautious_at).is_not(None),
        col(Job.state) == JobState.QUEUED,
        or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= now),
        col(Batch.state).in_(_CLAIMABLE),
        col(Batch.outcome).is_(None),
        col(Batch.expires_at) > now,
    )


def are_there(session: Session) -> bool:
    """Tell whether any pool has a cautious shard; hardly ever, and then no claim asks further."""
    return session.exec(_ARE_THERE).first() is not None


def waiting(session: Session, pool: str, now: datetime) -> Sequence[tuple[Job, Batch]]:
    """Read a pool's cautious shards that wait to be run, by the order of their batches."""
    query = (
        select(Job, Batch)
        .join(Batch, col(Batch.id) == col(Job.batch_id))
        .where(col(Batch.pool) == pool, *_queued(now))
        .order_by(col(Batch.rank), col(Batch.expires_at), col(Batch.seq), col(Job.number))
        .limit(WINDOW)
        .options(*WITHOUT_LISTS)
    )
    return [(job, batch) for job, batch in session.exec(query).all()]


def runs_one(session: Session, worker_id: str) -> bool:
    """Tell whether a worker holds a cautious shard."""
    query = (
        select(Lease.id)
        .join(Job, col(Job.id) == col(Lease.job_id))
        .where(col(Lease.worker_id) == worker_id, col(Lease.state).in_(_LIVE), col(Job.cautious_at).is_not(None))
        .limit(1)
    )
    return session.exec(query).first() is not None


def take(session: Session, job_id: int, *, chosen: str | None) -> Job | None:
    """Lock a cautious shard that is still queued with `chosen` as its worker; None when somebody was quicker."""
    query = select(Job).where(
        col(Job.id) == job_id,
        col(Job.state) == JobState.QUEUED,
        col(Job.cautious_at).is_not(None),
        col(Job.cautious_worker_id).is_not_distinct_from(chosen),
    )
    locked = query.with_for_update(key_share=True, skip_locked=True).execution_options(populate_existing=True)
    return session.exec(locked).first()


def knows_rows(session: Session, pool: str) -> bool:
    """Tell whether some worker of a pool that has not left can run row by row."""
    query = select(Worker.id).where(
        col(Worker.pool) == pool, col(Worker.state) != WorkerState.GONE, col(Worker.row_by_row).is_(True)
    )
    return session.exec(query.limit(1)).first() is not None


def waiting_of(session: Session, batch_ids: Collection[str]) -> Mapping[str, CautiousShard]:
    """Give for each batch that has any the first of its cautious shards that wait."""
    if not batch_ids:
        return {}
    query = (
        select(Job.batch_id, Job.number, Worker.name)
        .join(Worker, col(Worker.id) == col(Job.cautious_worker_id), isouter=True)
        .where(
            col(Job.cautious_at).is_not(None),
            col(Job.state) == JobState.QUEUED,
            col(Job.batch_id).in_(sorted(batch_ids)),
        )
        .order_by(col(Job.number).desc())
    )
    return {batch_id: CautiousShard(number, name) for batch_id, number, name in session.exec(query).all()}
