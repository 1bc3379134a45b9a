"""Absence is measured where heartbeats arrive: no worker pays for our own gap (PROTOCOL 4)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import events
from app.db import leases as leases_sql
from app.db import pools as pools_sql
from app.db import presence as presence_sql
from app.db.metrics import WorkerRow
from app.db.pools import PoolSet
from app.db.tables import Pool, PresenceTick, Worker
from app.domain.timing import Timing
from app.services import pools
from app.services.context import Yard
from app.services.eligibility import rungs

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


@dataclass(frozen=True, slots=True)
class Hearing:
    """When workers of some pools could be heard, read once for all who are judged by it."""

    yard: Yard
    now: datetime
    tick: PresenceTick | None
    pools: Mapping[str, Pool]

    def hears(self, worker: Worker) -> bool:
        """Whether the heartbeats of a worker can be heard."""
        return self.tick is not None and self.now - self.tick.at <= self._lived_by(worker).grace

    def silence(self, worker: Worker | WorkerRow) -> timedelta:
        """How long a worker has been silent that could have been heard: what the service missed itself is left out."""
        if self.tick is None or self.now - self.tick.at > _unheard(self._lived_by(worker)):
            return timedelta()
        pool = self.pools.get(worker.pool)
        gaps = (self.tick.heard_since, pool.heard_since if pool is not None else None)
        return self.now - max([worker.last_seen_at, *(end for end in gaps if end is not None)])

    def _lived_by(self, worker: Worker | WorkerRow) -> Timing:
        """Return the shorter rungs of those that a worker was told and those of its pool now."""
        told = rungs(self.yard.timing, worker.timing)
        return told.or_shorter(pools.timing_of(self.yard, self.pools.get(worker.pool)))


def hearing(session: Session, yard: Yard, names: Collection[str], now: datetime) -> Hearing:
    """Read when workers of these pools could be heard."""
    found = {pool.name: pool for pool in pools_sql.named(session, names)}
    return Hearing(yard, now, presence_sql.the_tick(session), found)


def _unheard(timing: Timing) -> timedelta:
    """A gap between ticks that a beat may have fallen into: silence counts from its end, though it is no absence."""
    return min(timing.grace, timedelta(seconds=MISSED_TICKS * timing.renew_seconds))
