"""The one row that says when heartbeats could last be heard (PROTOCOL 4)."""

from datetime import datetime

from sqlmodel import Session, col, select

from app.db.tables import PresenceTick


def locked_tick(session: Session) -> PresenceTick | None:
    """Lock the tick; None before the first API process ever ran."""
    return session.exec(select(PresenceTick).where(col(PresenceTick.id) == 1).with_for_update()).first()


def tick_at(session: Session) -> datetime | None:
    """Read when the tick moved last."""
    return session.exec(select(PresenceTick.at).where(col(PresenceTick.id) == 1)).first()


def move_tick(session: Session, tick: PresenceTick | None, now: datetime) -> None:
    """Set the tick to `now`."""
    tick = tick or PresenceTick(id=1, at=now)
    tick.at = now
    session.add(tick)
