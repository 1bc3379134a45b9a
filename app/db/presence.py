"""The one row that says when heartbeats could last be heard (PROTOCOL 4)."""

from contextlib import suppress
from datetime import datetime

from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db.tables import PresenceTick


def locked_tick(session: Session, now: datetime) -> PresenceTick:
    """Lock the tick, which the first API process that ever runs sets to `now`."""
    query = select(PresenceTick).where(col(PresenceTick.id) == 1).with_for_update()
    if (tick := session.exec(query).first()) is not None:
        return tick
    # Two first processes at once: the second one's insert waits for the first one's and then finds it.
    with suppress(IntegrityError), session.begin_nested():
        session.execute(insert(PresenceTick).values(id=1, at=now))
    return session.exec(query).one()


def the_tick(session: Session) -> PresenceTick | None:
    """Read when the tick moved last, and since when without a gap."""
    return session.exec(select(PresenceTick).where(col(PresenceTick.id) == 1)).first()


def move_tick(session: Session, tick: PresenceTick, now: datetime, *, after_gap: bool = False) -> None:
    """Set the tick (locked) to `now`."""
    tick.at = now
    if after_gap:
        tick.heard_since = now
    session.add(tick)
