"""Deciding what to ring: note it in the database first, publish after the commit (PROTOCOL 6).

Only a window is rung, as many messages as workers can start, so the broker stays small and order stays in SQL.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlmodel import Session

from app.db import cautious as cautious_sql
from app.db import claims as claims_sql
from app.db import dispatch as dispatch_sql
from app.db import jobs as jobs_sql
from app.db.idle import idle_workers
from app.services.context import Yard

AGAIN_SECONDS = 5
"""While a worker is free a batch is rung again after so long."""
AGAIN_BUSY_SECONDS = 60
"""While none is free."""
BURST_SECONDS = 0.2
"""Events of one batch within so long ring once."""
WINDOW = 16
"""Messages of one batch, and batches of one pool, that a single pass rings at most."""


@dataclass(frozen=True, slots=True)
class BatchRing:
    """Messages to publish on a pool's queue."""

    pool: str
    batch_id: str
    ring_no: int
    times: int


@dataclass(frozen=True, slots=True)
class ControlRing:
    """A message to publish on the control queue."""

    job_id: int
    batch_id: str
    ring_no: int


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
        free = idle_workers(session, pool, seen_after=now - yard.timing.grace, limit=WINDOW)
        return BatchRing(pool, batch_id, ring_no, times=max(1, min(queued, len(free))))

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


def unheard(yard: Yard, limit: int) -> tuple[list[tuple[str, float]], list[str]]:
    """Name batches (with the silence that is right for each) and control work that should be rung again."""
    with yard.store.read() as session:
        now = yard.store.now(session)
        control = dispatch_sql.silent_control(
            session, now=now, rung_before=now - timedelta(seconds=AGAIN_SECONDS), limit=limit
        )
        batches: list[tuple[str, float]] = []
        for pool in dispatch_sql.pools_with_work(session):
            free = idle_workers(session, pool, seen_after=now - yard.timing.grace, limit=1)
            quiet = AGAIN_SECONDS if free else AGAIN_BUSY_SECONDS
            careful = [batch.id for _, batch in cautious_sql.waiting(session, pool, now)]
            waiting = [batch.id for batch in claims_sql.waiting_batches(session, pool, now, WINDOW)]
            batches += [(batch_id, quiet) for batch_id in dict.fromkeys(careful + waiting)]
    return batches[:limit], list(dict.fromkeys(control))
