"""Workers in SQL, for people who look at them; a worker's own life is in app.db.workers."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, or_, tuple_
from sqlmodel import Session, col, select

from app.db.tables import Lease, Org, Pool, Worker
from app.domain.leases import LIVE
from app.domain.workers import Transport, WorkerState

MAX_LISTED = 10_000
MAX_NAMESAKES = 20
_LIVE = sorted(LIVE)


def of_pool(session: Session, pool: str) -> Sequence[Worker]:
    """Read a pool's workers that have not left."""
    query = select(Worker).where(col(Worker.pool) == pool, col(Worker.state) != WorkerState.GONE)
    return session.exec(query.order_by(col(Worker.id)).limit(MAX_LISTED)).all()


def listed(
    session: Session, org_id: str | None, *, pool: str | None, gone: bool, behind: Worker | None, limit: int
) -> Sequence[Worker]:
    """Read an org's GPU workers (None: everybody's) behind one, by pool and name; those that left only on demand."""
    query = select(Worker).where(col(Worker.transport) != Transport.CONTROL)
    if org_id is not None:
        query = query.where(col(Worker.org_id) == org_id)
    if pool is not None:
        query = query.where(col(Worker.pool) == pool)
    if not gone:
        query = query.where(col(Worker.state) != WorkerState.GONE)
    place = (col(Worker.pool), col(Worker.name), col(Worker.id))
    if behind is not None:
        query = query.where(tuple_(*place) > tuple_(behind.pool, behind.name, behind.id))
    return session.exec(query.order_by(*place).limit(limit)).all()


def by_id(session: Session, worker_id: str, org_id: str | None) -> Worker | None:
    """Find a GPU worker of an org by its id; `org_id` None: of whatever org."""
    query = select(Worker).where(col(Worker.id) == worker_id, col(Worker.transport) != Transport.CONTROL)
    if org_id is not None:
        query = query.where(col(Worker.org_id) == org_id)
    return session.exec(query).first()


def by_name(session: Session, name: str, org_id: str | None) -> Sequence[tuple[Worker, Org]]:
    """Find the GPU workers of that name, each with its org: one at most in `org_id`; None: of all orgs."""
    query = (
        select(Worker, Org)
        .join(Org, col(Org.id) == col(Worker.org_id))
        .where(col(Worker.name) == name, col(Worker.transport) != Transport.CONTROL)
    )
    if org_id is not None:
        query = query.where(col(Worker.org_id) == org_id)
    return session.exec(query.order_by(col(Org.name)).limit(MAX_NAMESAKES)).all()


def held_batches(session: Session, worker_ids: Collection[str]) -> Mapping[str, int]:
    """Count the batches that each worker holds live leases of; workers without one are left out."""
    if not worker_ids:
        return {}
    query = (
        select(Lease.worker_id, func.count(func.distinct(col(Lease.batch_id))))
        .where(col(Lease.worker_id).in_(sorted(worker_ids)), col(Lease.state).in_(_LIVE))
        .group_by(col(Lease.worker_id))
    )
    return {worker_id: int(count) for worker_id, count in session.execute(query).all()}


def serving(session: Session, org_id: str) -> Sequence[Worker]:
    """Read the workers in pools that an org may use, but for those that left or were found silent, the oldest first."""
    query = (
        select(Worker)
        .join(Pool, col(Pool.name) == col(Worker.pool))
        .where(
            or_(col(Pool.org_id).is_(None), col(Pool.org_id) == org_id),
            col(Worker.state) != WorkerState.GONE,
            col(Worker.offline_at).is_(None),
        )
    )
    return session.exec(query.order_by(col(Worker.created_at), col(Worker.id)).limit(MAX_LISTED)).all()
