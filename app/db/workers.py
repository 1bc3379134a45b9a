"""Workers in SQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Text, cast, exists, or_, update
from sqlmodel import Session, col, select

from app.db.leases import IS_LIVE
from app.db.pools import PoolSet
from app.db.tables import Lease, Org, Worker
from app.db.types import Json
from app.domain.leases import LIVE
from app.domain.workers import Transport, WorkerState

_LIVE = sorted(LIVE)
_THERE = sorted(set(WorkerState) - {WorkerState.GONE})
TIMING = Json(dict, column="worker.timing")
"""For a timing that a query gives as text, since PostgreSQL compares no JSON."""
_TOLD_TIMINGS = (
    select(Worker.pool, cast(col(Worker.timing), Text))
    .where(
        col(Worker.state).in_(_THERE),
        or_(col(Worker.offline_at).is_(None), exists().where(col(Lease.worker_id) == col(Worker.id), IS_LIVE)),
    )
    .distinct()
)


def lock_by_name(session: Session, org_id: str, name: str) -> Worker | None:
    """Lock the worker of that name."""
    query = select(Worker).where(col(Worker.org_id) == org_id, col(Worker.name) == name)
    return session.exec(query.with_for_update(key_share=True)).first()


def by_ids(session: Session, worker_ids: Collection[str]) -> dict[str, Worker]:
    """Read workers as they are now, also those that the session knows already, without locking them."""
    query = select(Worker).where(col(Worker.id).in_(sorted(worker_ids)))
    return {worker.id: worker for worker in session.exec(query.execution_options(populate_existing=True))}


def of_pool(session: Session, pool: str, limit: int = 500) -> Sequence[Worker]:
    """Read the workers of a pool that are not gone, most lately seen first."""
    query = (
        select(Worker)
        .where(col(Worker.pool) == pool, col(Worker.state) != WorkerState.GONE)
        .order_by(col(Worker.last_seen_at).desc())
        .limit(limit)
    )
    return session.exec(query).all()


def ever_of_pool(session: Session, pool: str, limit: int = 500) -> Sequence[Worker]:
    """Read the workers that a pool ever had, most lately seen first."""
    query = select(Worker).where(col(Worker.pool) == pool).order_by(col(Worker.last_seen_at).desc()).limit(limit)
    return session.exec(query).all()


def silent_since(session: Session, before: datetime, limit: int, *, of: PoolSet) -> Sequence[Worker]:
    """Lock workers of these pools last seen before `before` that nobody marked offline yet."""
    query = (
        select(Worker)
        .where(
            of.of_worker,
            col(Worker.last_seen_at) < before,
            col(Worker.offline_at).is_(None),
            col(Worker.state) != WorkerState.GONE,
        )
        .order_by(col(Worker.last_seen_at))
        .limit(limit)
    )
    return session.exec(query.with_for_update(key_share=True, skip_locked=True)).all()


def told_timings(session: Session) -> list[tuple[str, Mapping[str, float]]]:
    """Give each pool with the different timings that its present workers were told; one of them a row, not a worker.

    A worker that counts as offline is present while it has a live lease: it may be our own silence that lasts.
    """
    return [(pool, TIMING.read_text(timing)) for pool, timing in session.exec(_TOLD_TIMINGS)]


def seen(session: Session, worker_id: str, boot_id: str, now: datetime) -> None:
    """Note a sign of life of the current boot, and whether it holds anything.

    A statement of its own transaction (PROTOCOL 1).
    """
    holds = exists().where(col(Lease.worker_id) == worker_id, col(Lease.state).in_(_LIVE))
    session.execute(
        update(Worker)
        .where(col(Worker.id) == worker_id, col(Worker.boot_id) == boot_id)
        .values(last_seen_at=now, holds=holds)
        .execution_options(synchronize_session=False)
    )


def operator_org(session: Session) -> str | None:
    """Give the org that runs the service; None before the first token was made."""
    return session.exec(select(Org.id).where(col(Org.operator).is_(True)).limit(1)).first()


def control_alive(session: Session, seen_after: datetime) -> bool:
    """Tell whether some control worker has been heard of since then."""
    query = (
        select(Worker.id)
        .where(col(Worker.transport) == Transport.CONTROL, col(Worker.last_seen_at) > seen_after)
        .limit(1)
    )
    return session.exec(query).first() is not None
