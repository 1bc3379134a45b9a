"""What waiting polls are woken by, in SQL: bounded reads through indexes, whatever the number of workers."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text
from sqlmodel import Session, col, select

from app.db.tables import Lease, Worker

_STOPPING = text("lease.state = 'stopping'")
"""Literal, because SQLite takes a partial index only where it sees the value."""


def commanded(session: Session, *, after: datetime, limit: int) -> Sequence[tuple[str, datetime]]:
    """Name workers that were given a command since `after`, and when."""
    query = (
        select(Worker.id, Worker.command_at)
        .where(col(Worker.command_at) > after)
        .order_by(col(Worker.command_at).desc())
        .limit(limit)
    )
    return [(worker_id, at) for worker_id, at in session.exec(query).all() if at is not None]


def stopping(session: Session, *, limit: int, worker_id: str | None = None) -> Sequence[tuple[str, str]]:
    """Name workers (or one) and the batches of which they hold a lease that was told to stop."""
    query = select(Lease.worker_id, Lease.batch_id).where(_STOPPING)
    if worker_id is not None:
        query = query.where(col(Lease.worker_id) == worker_id)
    return list(session.exec(query.distinct().limit(limit)).all())
