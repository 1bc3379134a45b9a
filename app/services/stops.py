"""Cancel and the end of the window: they do not revoke, they stop (PROTOCOL 5).

Two steps. `outcome` is set once, alone, by compare-and-set: from then on no claim of the batch commits. Then its leases
are told to stop and its queued jobs are cancelled, in lock order and in bites; the batch-expiry sweep does the second
step again until nothing is left, so a crash between the two loses nothing.
"""

from datetime import datetime
from functools import partial

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import events, locks
from app.db import jobs as jobs_sql
from app.db import leases as leases_sql
from app.db import stops as stops_sql
from app.db.tables import Batch
from app.domain.batches import ENDED, STOPPABLE, BatchState, Outcome
from app.domain.errors import Conflict
from app.domain.jobs import JobState
from app.services.context import Caller, Yard
from app.services.leases import ring_after
from app.services.moves import move_job, one_by_one, settle, stopping
from app.services.own_batch import own_batch

BITE = 500
"""Leases and jobs that one transaction of the second step touches at most."""


def cancel(yard: Yard, caller: Caller, batch_id: str) -> None:
    """Tell a batch to end as cancelled. Finished rows are kept; rows in flight are cut.

    Nothing happens when it is cancelled or being cancelled. Raises NotFound, and Conflict once another end was decided.
    """

    def decide(session: Session) -> bool:
        batch = own_batch(session, caller, batch_id)
        now = yard.store.now(session)
        won = stops_sql.set_outcome_if_open(session, batch_id, Outcome.CANCELLED, now)
        if won:
            _record(session, batch, "batch.cancelling", now, caller.actor)
            return True
        session.refresh(batch)
        if batch.outcome == Outcome.CANCELLED:
            return False
        state = batch.state if batch.state in ENDED else BatchState.FINALIZING
        raise Conflict(f"Cannot cancel a batch with status '{state}'.", code="batch_not_cancellable")

    if yard.store.run(decide):
        spread(yard, batch_id)


def expire_due(yard: Yard, limit: int) -> int:
    """Tell batches whose window has ended to end as expired, and count them."""
    with yard.store.read() as session:
        due = stops_sql.due(session, yard.store.now(session), limit)

    def decide(batch_id: str, session: Session) -> bool:
        now = yard.store.now(session)
        won = stops_sql.set_outcome_if_open(session, batch_id, Outcome.EXPIRED, now)
        batch = batches_sql.by_id(session, batch_id)
        if won and batch is not None:
            _record(session, batch, "batch.expiring", now, "service:batch-expiry")
        return won

    won = [batch_id for batch_id in due if yard.store.run(partial(decide, batch_id))]
    one_by_one(won, partial(spread, yard))
    return len(won)


def first_rows_failed(
    session: Session, batch: Batch, error: dict[str, object], now: datetime, *, live: int, actor: str
) -> bool:
    """Decide that a batch ends as failed for its first rows; False when somebody decided before, or has a say.

    Its live leases are locked, `live` of them. The caller spreads the word after its commit.
    """
    won = stops_sql.fail_if_open(session, batch.id, [error], live=live)
    if won:
        _record(session, batch, "batch.first_rows_failed", now, actor)
    return won


def spread_unfinished(yard: Yard, limit: int) -> int:
    """Do the second step again for batches where it did not come to its end, and count them."""
    with yard.store.read() as session:
        found = stops_sql.half_stopped(session, limit)
    one_by_one(found, partial(spread, yard))
    return len(found)


def spread(yard: Yard, batch_id: str) -> None:
    """Stop the leases and cancel the queued jobs of a batch that was told to end; rings its workers."""
    while yard.store.run(lambda session: _bite(session, yard, batch_id)):
        pass
    yard.bells.stop(batch_id)
    with yard.store.read() as session:
        batch = batches_sql.by_id(session, batch_id)
    ring_after(yard, batch, batch_id)


def _bite(session: Session, yard: Yard, batch_id: str) -> bool:
    """Take one bite; True when there may be more."""
    held = locks.held_leases(session, batch_id, BITE)
    queued = jobs_sql.lock_queued(session, batch_id, BITE)
    batch = locks.batch(session, batch_id)
    # Another one that stops it may have come to the end: then the one live lease is the finalizer's.
    if batch is None or not stopping(batch) or batch.state not in STOPPABLE:
        return False
    now = yard.store.now(session)
    leases_sql.stop(session, [lease.id or 0 for lease in held], until=yard.timing.stop_end(now))
    for job in queued:
        move_job(session, job, JobState.CANCELLED, now=now)
    batch.open_jobs -= len(queued)
    more = len(held) == BITE or len(queued) == BITE
    if not more:
        batch.stop_spread_at = now
    session.add(batch)
    if held or queued:
        _record(session, batch, "batch.stopping", now, "service:stop", leases=len(held), jobs=len(queued))
    settle(session, batch, now=now, actor="service:stop")
    return more


def _record(session: Session, batch: Batch, kind: str, now: datetime, actor: str, **data: int) -> None:
    events.record(session, now=now, type=kind, subject=batch.id, actor=actor, org_id=batch.org_id, data=dict(data))
