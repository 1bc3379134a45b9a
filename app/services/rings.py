"""Deciding what to ring: note it in the database first, publish after the commit (PROTOCOL 6).

Only a window is rung, as many messages as workers can start, so the broker stays small and order stays in SQL. Where a
transaction makes the work itself it notes the ring with it: one commit less on the way of every batch.
"""

from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import cautious as cautious_sql
from app.db import claims as claims_sql
from app.db import dispatch as dispatch_sql
from app.db import jobs as jobs_sql
from app.db.idle import idle_workers
from app.db.tables import Batch, Job
from app.services.context import BatchRing, ControlRing, Yard
from app.services.pools import grace_in

AGAIN_SECONDS = 5
"""While a worker is free a batch is rung again after so long."""
AGAIN_BUSY_SECONDS = 60
"""While none is free."""
BURST_SECONDS = 0.2
"""Events of one batch within so long ring once."""
WINDOW = 16
"""Messages of one batch, and batches of one pool, that a single pass rings at most."""


def ring_batch(yard: Yard, batch_id: str, *, quiet_seconds: float = BURST_SECONDS) -> BatchRing | None:
    """Note a ring of a batch unless it was rung within `quiet_seconds`; None when there is nothing to publish."""

    def work(session: Session) -> BatchRing | None:
        now = yard.store.now(session)
        queued = jobs_sql.queued_shards(session, batch_id, WINDOW)
        if not queued:
            return None
        rung = dispatch_sql.set_batch_rung(
            session, batch_id, now=now, rung_before=now - timedelta(seconds=quiet_seconds)
        )
        if rung is None:
            return None
        pool, ring_no = rung
        return BatchRing(pool, batch_id, ring_no, times=_times(session, yard, pool, queued, now))

    return yard.store.run(work)


def ring_control(yard: Yard, batch_id: str, *, quiet_seconds: float = BURST_SECONDS) -> list[ControlRing]:
    """Note a ring of a batch's control work."""

    def work(session: Session) -> list[ControlRing]:
        now = yard.store.now(session)
        rung = dispatch_sql.set_control_rung(
            session, batch_id, now=now, rung_before=now - timedelta(seconds=quiet_seconds)
        )
        return [ControlRing(job_id, batch_id, ring_no) for job_id, ring_no in rung]

    return yard.store.run(work)


def note_control(job: Job, *, now: datetime) -> None:
    """Note a ring on control work that the caller's transaction makes: nobody else can have rung for it."""
    job.rung_at, job.ring_no = now, job.ring_no + 1


def note_batch(session: Session, yard: Yard, batch: Batch, *, shards: int, now: datetime) -> BatchRing:
    """Note a ring on a locked batch that the caller's transaction gives its first shards."""
    batch.rung_at, batch.ring_no = now, batch.ring_no + 1
    session.add(batch)
    return BatchRing(batch.pool, batch.id, batch.ring_no, times=_times(session, yard, batch.pool, shards, now))


def _times(session: Session, yard: Yard, pool: str, shards: int, now: datetime) -> int:
    free = idle_workers(session, pool, seen_after=now - grace_in(session, yard, pool), limit=WINDOW)
    return max(1, min(shards, len(free)))


def unheard(yard: Yard, limit: int) -> tuple[list[tuple[str, float]], list[str]]:
    """Name batches (with the silence that is right for each) and control work that should be rung again."""
    with yard.store.read() as session:
        now = yard.store.now(session)
        control = dispatch_sql.silent_control(
            session, now=now, rung_before=now - timedelta(seconds=AGAIN_SECONDS), limit=limit
        )
        batches: list[tuple[str, float]] = []
        for pool in dispatch_sql.pools_with_work(session):
            free = idle_workers(session, pool, seen_after=now - grace_in(session, yard, pool), limit=1)
            quiet = AGAIN_SECONDS if free else AGAIN_BUSY_SECONDS
            careful = [batch.id for _, batch in cautious_sql.waiting(session, pool, now)]
            waiting = [batch.id for batch in claims_sql.waiting_batches(session, pool, now, WINDOW)]
            batches += [(batch_id, quiet) for batch_id in dict.fromkeys(careful + waiting)]
    return batches[:limit], list(dict.fromkeys(control))
