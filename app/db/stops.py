"""Telling a batch to end, in SQL (PROTOCOL 5: first the outcome alone, then its leases and jobs)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.db.tables import Batch
from app.domain.batches import STOPPABLE, TOLD_TO_END, Outcome

_STOPPABLE = sorted(STOPPABLE)
_TOLD = sorted(TOLD_TO_END)


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


def fail_if_open(session: Session, batch_id: str, errors: Sequence[dict[str, object]], *, live: int) -> bool:
    """Set the outcome `failed` by the same rule, with its reason, if exactly `live` leases are on the batch.

    The caller has locked those leases: whatever was claimed meanwhile has a say, too.
    """
    statement = (
        update(Batch)
        .where(
            col(Batch.id) == batch_id,
            col(Batch.outcome).is_(None),
            col(Batch.state).in_(_STOPPABLE),
            col(Batch.live) == live,
        )
        .values(outcome=Outcome.FAILED, errors=list(errors), error_count=len(errors))
        .execution_options(synchronize_session=False)
        .returning(col(Batch.seq))
    )
    return session.execute(statement).first() is not None


def let_run(session: Session, batch_id: str) -> None:
    """Note that a batch's first rows are judged: it runs to its end, whatever others of its rows bring."""
    session.execute(
        update(Batch)
        .where(col(Batch.id) == batch_id, col(Batch.canary_over).is_(False))
        .values(canary_over=True)
        .execution_options(synchronize_session=False)
    )


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
