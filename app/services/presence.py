"""Absence is measured where heartbeats arrive: no worker pays for our own gap (PROTOCOL 4)."""

from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import events
from app.db import leases as leases_sql
from app.db import pools as pools_sql
from app.db import presence as presence_sql
from app.db.pools import PoolSet
from app.db.tables import Pool, Worker
from app.domain.timing import Timing
from app.services import pools
from app.services.context import Yard
from app.services.eligibility import told

MISSED_TICKS = 3


def tick(yard: Yard) -> timedelta | None:
    """Say that this process can hear heartbeats now; called by every API process each `renewal_seconds`.

    Whoever finds the tick older than the grace of a pool adds exactly that gap to the end of every live lease of its
    workers, in the transaction that moves the tick, so it is added once. Gives the gap that was added, or None. Where a
    present worker was told a shorter grace before the pool's was changed, that one counts: its leases live by it.
    """

    def work(session: Session) -> timedelta | None:
        before = presence_sql.locked_tick(session, yard.store.now(session))
        now = yard.store.now(session)
        gap = now - before.at
        presence_sql.move_tick(session, before, now, after_gap=gap > _unheard(yard.timing))
        own = pools.lived_ladders(session, yard)
        pools_sql.note_gap(session, [name for name, timing in own.items() if gap > _unheard(timing)], now)
        if not any(gap > timing.grace for timing in (yard.timing, *own.values())):
            return None
        late = pools.where(own, yard.timing, lambda timing: gap > timing.grace)
        leases = leases_sql.postpone(session, gap, of=late)
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
        own = pools.lived_ladders(session, yard)
    return min(timing.renew_seconds for timing in (yard.timing, *own.values()))


def listening(session: Session, yard: Yard, now: datetime) -> PoolSet:
    """Name the pools whose heartbeats can be heard: the tick is younger than their grace."""
    tick = presence_sql.the_tick(session)
    own = pools.lived_ladders(session, yard)
    return pools.where(own, yard.timing, lambda timing: tick is not None and now - tick.at <= timing.grace)


def hears(session: Session, yard: Yard, worker: Worker, now: datetime) -> bool:
    """Tell whether the heartbeats of a worker can be heard."""
    tick = presence_sql.the_tick(session)
    return tick is not None and now - tick.at <= _lived_by(yard, worker, session.get(Pool, worker.pool)).grace


def silence(session: Session, yard: Yard, worker: Worker, now: datetime) -> timedelta:
    """Say for how long a worker has been silent that could have been heard: what we missed ourselves is left out."""
    tick = presence_sql.the_tick(session)
    pool = session.get(Pool, worker.pool)
    if tick is None or now - tick.at > _unheard(_lived_by(yard, worker, pool)):
        return timedelta()
    gaps = (tick.heard_since, pool.heard_since if pool is not None else None)
    return now - max([worker.last_seen_at, *(end for end in gaps if end is not None)])


def _lived_by(yard: Yard, worker: Worker, pool: Pool | None) -> Timing:
    """Give the shorter rungs of those that a worker was told and those of its pool now."""
    return told(worker, yard.timing).or_shorter(pools.timing_of(yard, pool))


def _unheard(timing: Timing) -> timedelta:
    """A gap between ticks that a beat may have fallen into: silence counts from its end, though it is no absence."""
    return min(timing.grace, timedelta(seconds=MISSED_TICKS * timing.renew_seconds))
