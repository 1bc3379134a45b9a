"""When each sweep ran last, in SQL."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import func, insert, literal, or_, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db.tables import SweepState
from app.db.types import UtcMs


def elect(
    session: Session, name: str, *, now: datetime, due: timedelta, runner: str, alone_for: timedelta = timedelta()
) -> bool:
    """Move a sweep's row if it last ran before `now - due`; True for the one caller that did.

    While a pass of another runner has not ended, none begins before it is `alone_for` old. One that ran in the future
    ran before the database's clock was set back, and counts as one that ran long ago.
    """
    last, unfinished = col(SweepState.last_run_at), col(SweepState.unfinished_since)
    is_due = or_(last < now - due, last > now + due)
    is_free = or_(unfinished.is_(None), col(SweepState.runner) == runner, last <= now - alone_for, last > now + due)
    moved = session.execute(
        update(SweepState)
        .where(col(SweepState.name) == name, is_due, is_free)
        .values(last_run_at=now, runner=runner, unfinished_since=func.coalesce(unfinished, literal(now, UtcMs)))
        .execution_options(synchronize_session=False)
        .returning(col(SweepState.name))
    ).first()
    if moved is not None:
        return True
    if session.get(SweepState, name) is not None:
        return False
    try:
        with session.begin_nested():
            first = insert(SweepState).values(
                name=name, last_run_at=now, runner=runner, counts={}, unfinished_since=now
            )
            session.execute(first)
    except IntegrityError:
        return False
    return True


def note_end(session: Session, name: str, counts: Mapping[str, int] | None) -> None:
    """Record that a pass has ended, and what it counted; None: it failed."""
    counted = {} if counts is None else {"counts": dict(counts)}
    session.execute(
        update(SweepState)
        .where(col(SweepState.name) == name)
        .values(unfinished_since=None, **counted)
        .execution_options(synchronize_session=False)
    )


def last_runs(session: Session) -> Mapping[str, datetime]:
    """Give when each sweep ran last."""
    return {state.name: state.last_run_at for state in session.exec(select(SweepState)).all()}
