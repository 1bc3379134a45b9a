"""Row locks, in the one order that every transaction keeps: worker, lease, job, batch (PROTOCOL 1).

Several rows of one kind are locked in ascending id. NO KEY UPDATE leaves foreign-key checks of others alone. On SQLite
the transaction is the lock. Statements are built once, for building one costs as much as running it.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import BindParameter, bindparam
from sqlmodel import Session, col, select

from app.db.batches import WITHOUT_LISTS
from app.db.pools import PoolSet
from app.db.tables import Batch, Job, Lease, Worker
from app.domain.leases import LIVE, LeaseState

_LIVE = sorted(LIVE)
_FRESH = {"populate_existing": True}
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_WORKERS = (
    select(Worker)
    .where(col(Worker.id).in_(_IDS))
    .order_by(col(Worker.id))
    .with_for_update(key_share=True)
    .execution_options(**_FRESH)
)
_LEASES = (
    select(Lease)
    .where(col(Lease.id).in_(_IDS))
    .order_by(col(Lease.id))
    .with_for_update(key_share=True)
    .execution_options(**_FRESH)
)
_LEASES_OF = _LEASES.where(col(Lease.worker_id).in_(bindparam("worker_ids", expanding=True)))
_JOBS = (
    select(Job)
    .where(col(Job.id).in_(_IDS))
    .order_by(col(Job.id))
    .with_for_update(key_share=True)
    .execution_options(**_FRESH)
)
_BATCH = (
    select(Batch)
    .where(col(Batch.id) == bindparam("batch_id"))
    .with_for_update(key_share=True)
    .execution_options(**_FRESH)
    .options(*WITHOUT_LISTS)
)


def worker(session: Session, worker_id: str) -> Worker | None:
    """Lock a worker's row."""
    return session.exec(_WORKERS, params={"ids": [worker_id]}).first()


def workers(session: Session, worker_ids: Collection[str]) -> dict[str, Worker]:
    """Lock workers' rows."""
    return {worker.id: worker for worker in session.exec(_WORKERS, params={"ids": sorted(worker_ids)})}


def leases(session: Session, ids: Collection[int], *, worker_id: str | None = None) -> dict[int, Lease]:
    """Lock leases by id, in whatever state; only those of `worker_id` where one is given."""
    if worker_id is not None:
        return leases_of(session, ids, [worker_id])
    rows = session.exec(_LEASES, params={"ids": sorted(ids)}).all()
    return {lease.id: lease for lease in rows if lease.id is not None}


def leases_of(session: Session, ids: Collection[int], worker_ids: Collection[str]) -> dict[int, Lease]:
    """Lock those of `ids` that are of one of these workers, in whatever state."""
    rows = session.exec(_LEASES_OF, params={"ids": sorted(ids), "worker_ids": sorted(worker_ids)}).all()
    return {lease.id: lease for lease in rows if lease.id is not None}


def held_leases(session: Session, batch_id: str, limit: int) -> Sequence[Lease]:
    """Lock leases of a batch that nobody told to stop yet, oldest first."""
    query = (
        select(Lease)
        .where(col(Lease.batch_id) == batch_id, col(Lease.state) == LeaseState.HELD)
        .order_by(col(Lease.id))
        .limit(limit)
    )
    return session.exec(query.with_for_update(key_share=True).execution_options(populate_existing=True)).all()


def live_of_batch(session: Session, batch_id: str) -> Sequence[Lease]:
    """Lock every live lease of a batch: nobody hands in rows of it meanwhile."""
    query = select(Lease).where(col(Lease.batch_id) == batch_id, col(Lease.state).in_(_LIVE)).order_by(col(Lease.id))
    return session.exec(query.with_for_update(key_share=True).execution_options(populate_existing=True)).all()


def live_leases(session: Session, of: PoolSet) -> list[int]:
    """Lock every live lease of these pools' workers, and name them."""
    held_there = col(Lease.worker_id).in_(select(Worker.id).where(of.of_worker))
    query = select(Lease.id).where(col(Lease.state).in_(_LIVE), held_there).order_by(col(Lease.id))
    return [lease_id for lease_id in session.exec(query.with_for_update(key_share=True)).all() if lease_id is not None]


def lease_if_free(session: Session, lease_id: int) -> Lease | None:
    """Lock one live lease, or give None when it has ended or somebody is at it now (a sweep comes again)."""
    query = select(Lease).where(col(Lease.id) == lease_id, col(Lease.state).in_(_LIVE))
    return session.exec(query.with_for_update(key_share=True, skip_locked=True)).first()


def jobs(session: Session, ids: Collection[int]) -> dict[int, Job]:
    """Lock jobs by id."""
    rows = session.exec(_JOBS, params={"ids": sorted(ids)}).all()
    return {job.id: job for job in rows if job.id is not None}


def batch(session: Session, batch_id: str) -> Batch | None:
    """Lock a batch's row."""
    return session.exec(_BATCH, params={"batch_id": batch_id}).first()
