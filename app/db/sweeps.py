"""When each sweep ran last, in SQL."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import insert, or_, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db.tables import SweepState


def elect(session: Session, name: str, *, now: datetime, due: timedelta, runner: str) -> bool:
    """Move a sweep's row if it last ran before `now - due`; True for the one caller that did.

    One that ran in the future ran before the database's clock was set back, and counts as one that ran long ago.
    """
    last = col(SweepState.last_run_at)
    moved = session.execute(
        update(SweepState)
        .where(col(SweepState.name) == name, or_(last < now - due, last > now + due))
        .values(last_run_at=now, runner=runner)
        .execution_options(synchronize_session=False)
        .returning(col(SweepState.name))
    ).first()
    if moved is not None:
        return True
    if session.get(SweepState, name) is not None:
        return False
    try:
        with session.begin_nested():
            session.execute(insert(SweepState).values(name=name, last_run_at=now, runner=runner, counts={}))
    except IntegrityError:
        return False
    return True


def note(session: Session, name: str, counts: Mapping[str, int]) -> None:
    """Keep what the last pass counted."""
    session.execute(
        update(SweepState)
        .where(col(SweepState.name) == name)
        .values(counts=dict(counts))
        .execution_options(synchronize_session=False)
    )


def last_runs(session: Session) -> Mapping[str, datetime]:
    """Give when each sweep ran last."""
    return {state.name: state.last_run_at for state in session.exec(select(SweepState)).all()}
