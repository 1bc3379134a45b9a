"""Telling a batch to end, in SQL (PROTOCOL 5: first the outcome alone, then its leases and jobs)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.db.tables import Batch
from app.domain.batches import STOPPABLE, Outcome

_STOPPABLE = sorted(STOPPABLE)
_TOLD = (Outcome.CANCELLED, Outcome.EXPIRED)


def set_outcome_if_open(session: Session, batch_id: str, outcome: Outcome, now: datetime) -> bool:
    """Set a batch's outcome if it has none and is not being finalized; False when somebody else decided before."""
    values: dict[str, object] = {"outcome": outcome}
    if outcome is Outcome.CANCELLED:
        values["cancelling_at"] = now
    statement = (
        update(Batch)
        .where(col(Batch.id) == batch_id, col(Batch.outcome).is_(None), col(Batch.state).in_(_STOPPABLE))
        .values(**values)
        .execution_options(synchronize_session=False)
        .returning(col(Batch.seq))
    )
    return session.execute(statement).first() is not None


def due(session: Session, now: datetime, limit: int) -> Sequence[str]:
    """Name batches whose window has ended and that nobody told to end."""
    query = (
        select(Batch.id)
        .where(col(Batch.state).in_(_STOPPABLE), col(Batch.outcome).is_(None), col(Batch.expires_at) <= now)
        .order_by(col(Batch.expires_at))
        .limit(limit)
    )
    return session.exec(query).all()


def half_stopped(session: Session, limit: int) -> Sequence[str]:
    """Name batches that were told to end and whose leases and jobs may not all know."""
    query = (
        select(Batch.id)
        .where(col(Batch.state).in_(_STOPPABLE), col(Batch.outcome).in_(_TOLD), col(Batch.stop_spread_at).is_(None))
        .order_by(col(Batch.seq))
        .limit(limit)
    )
    return session.exec(query).all()
