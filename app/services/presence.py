"""Absence is measured where heartbeats arrive: no worker pays for our own gap (PROTOCOL 4)."""

from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import events
from app.db import leases as leases_sql
from app.db import presence as presence_sql
from app.services.context import Yard
from app.services.pools import ladders

MISSED_TICKS = 3


def tick(yard: Yard) -> timedelta | None:
    """Say that this process can hear heartbeats now; called by every API process each `renewal_seconds`.

    Whoever finds the tick older than the shortest grace of all pools adds exactly that gap to the end of every live
    lease, in the transaction that moves the tick, so it is added once. Gives the gap that was added, or None.
    """

    def work(session: Session) -> timedelta | None:
        before = presence_sql.locked_tick(session, yard.store.now(session))
        now = yard.store.now(session)
        gap = now - before.at
        is_absence = gap > _grace(session, yard)
        presence_sql.move_tick(session, before, now, after_gap=gap > _unheard(session, yard))
        if not is_absence:
            return None
        leases = leases_sql.postpone(session, gap)
        events.record(
            session,
            now=now,
            type="service.absence",
            subject="api",
            actor="service:presence",
            data={"gap_seconds": round(gap.total_seconds(), 3), "leases": leases},
        )
        return gap

    return yard.store.run(work)


def renewal_seconds(yard: Yard) -> float:
    """Say how often to tick: as often as the workers beat that beat most often."""
    with yard.store.read() as session:
        return _renewal(session, yard)


def listening(session: Session, yard: Yard, now: datetime) -> bool:
    """Tell whether heartbeats can be heard: the tick is younger than the shortest grace."""
    tick = presence_sql.the_tick(session)
    return tick is not None and now - tick.at <= _grace(session, yard)


def silence(session: Session, yard: Yard, last_seen_at: datetime, now: datetime) -> timedelta:
    """Say for how long somebody has been silent who could have been heard: what we missed ourselves is left out."""
    tick = presence_sql.the_tick(session)
    if tick is None or now - tick.at > _unheard(session, yard):
        return timedelta()
    return now - max(last_seen_at, tick.heard_since or last_seen_at)


def _unheard(session: Session, yard: Yard) -> timedelta:
    """A gap between ticks that a beat may have fallen into: silence counts from its end, though it is no absence."""
    return min(_grace(session, yard), timedelta(seconds=MISSED_TICKS * _renewal(session, yard)))


def _grace(session: Session, yard: Yard) -> timedelta:
    """The shortest: a pool's leases may end before the service's own grace is over."""
    return min(ladder.grace for ladder in ladders(session, yard))


def _renewal(session: Session, yard: Yard) -> float:
    return min(ladder.renew_seconds for ladder in ladders(session, yard))
