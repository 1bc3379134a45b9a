"""What a claim looks at: the batches of a pool in order, and whether somebody else of the pool is idle.

Bounded reads through indexes only; never an aggregate over jobs (PROTOCOL 7).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

from sqlalchemy import BindParameter, ColumnElement, bindparam, exists, func, or_, tuple_, union_all, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app.db.tables import Batch, Job, Lease, Worker
from app.db.types import UtcMs
from app.domain.batches import CLAIMABLE, BatchState
from app.domain.jobs import JobKind, JobState
from app.domain.leases import LIVE
from app.domain.workers import Phase, WorkerState

WINDOW = 32
_LIVE = sorted(LIVE)
_CLAIMABLE = sorted(CLAIMABLE)


def _waiting(
    now: datetime | BindParameter[datetime], states: Sequence[BatchState] = _CLAIMABLE
) -> tuple[ColumnElement[bool], ...]:
    """Give what makes a batch one that a worker may take a shard of, while it is in one of `states`."""
    has_work = exists().where(
        col(Job.batch_id) == col(Batch.id),
        col(Job.kind) == JobKind.SHARD,
        col(Job.state) == JobState.QUEUED,
        col(Job.cautious_at).is_(None),  # those are taken another way (app.services.cautious)
        or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= now),
    )
    in_state = col(Batch.state).in_(states) if len(states) > 1 else col(Batch.state) == states[0]
    return in_state, col(Batch.outcome).is_(None), col(Batch.expires_at) > now, has_work


def waiting_batches(
    session: Session, pool: str, now: datetime, limit: int = WINDOW, *, after: Batch | None = None
) -> Sequence[Batch]:
    """Read batches of a pool that have a queued shard, those behind `after`: by rank, then deadline, then age.

    The first of each state come straight out of the index that holds this order within a state. Asked for both states
    at once, the database looks at every batch of the pool and sorts.
    """
    given: dict[str, object] = {"pool": pool, "now": now}
    if after is not None:
        given |= {"rank": after.rank, "expires_at": after.expires_at, "seq": after.seq}
    return session.exec(_in_order(limit, behind=after is not None), params=given).all()


@cache
def _in_order(limit: int, *, behind: bool) -> SelectOfScalar[Batch]:
    """Build the statement of `waiting_batches` once: building it costs more than running it."""
    order = (col(Batch.rank), col(Batch.expires_at), col(Batch.seq))
    place = tuple_(bindparam("rank"), bindparam("expires_at", type_=UtcMs), bindparam("seq"))
    now = bindparam("now", type_=UtcMs)
    first = (
        select(col(Batch.seq))
        .where(
            col(Batch.pool) == bindparam("pool"), *_waiting(now, [state]), *([tuple_(*order) > place] if behind else [])
        )
        .order_by(*order)
        .limit(limit)
        .subquery()
        for state in _CLAIMABLE
    )
    either = union_all(*(select(found.c.seq) for found in first))
    return select(Batch).where(col(Batch.seq).in_(either)).order_by(*order).limit(limit)


def waiting_batch(session: Session, pool: str, batch_id: str, now: datetime) -> Batch | None:
    """Read one batch of a pool, if it has a queued shard that may be claimed."""
    query = select(Batch).where(col(Batch.id) == batch_id, col(Batch.pool) == pool, *_waiting(now))
    return session.exec(query).first()


def live_by_group(session: Session, pool: str, groups: Sequence[str]) -> Mapping[str, int]:
    """Sum the live leases of the named groups over a pool's running batches."""
    if not groups:
        return {}
    query = (
        select(Batch.fair_group, func.sum(Batch.live))
        .where(
            col(Batch.pool) == pool,
            col(Batch.state).in_(_CLAIMABLE),
            col(Batch.live) > 0,
            col(Batch.fair_group).in_(sorted(groups)),
        )
        .group_by(col(Batch.fair_group))
    )
    return {group: int(total) for group, total in session.exec(query).all() if group is not None}


def idle_in(pool: str, *, seen_after: datetime) -> tuple[ColumnElement[bool], ...]:
    """Give what makes a worker of a pool idle: it is ready, was heard of since, and holds nothing.

    One that reports no phase is ready while it is heard of (A-19); one that is told to drain takes nothing more.
    """
    holds = exists().where(col(Lease.worker_id) == col(Worker.id), col(Lease.state).in_(_LIVE))
    return (
        col(Worker.pool) == pool,
        col(Worker.state) == WorkerState.ACTIVE,
        or_(col(Worker.phase) == Phase.READY, col(Worker.phase).is_(None)),
        col(Worker.drain_requested_at).is_(None),
        col(Worker.last_seen_at) > seen_after,
        ~holds,
    )


def someone_idle(session: Session, pool: str, *, but: str, seen_after: datetime) -> bool:
    """Tell whether another ready, reachable worker of the pool holds nothing (PROTOCOL 6: then one shard at a time)."""
    query = select(Worker.id).where(*idle_in(pool, seen_after=seen_after), col(Worker.id) != but).limit(1)
    return session.exec(query).first() is not None


def count_live(session: Session, batch_id: str, leases: int) -> int | None:
    """Count new leases on their batch and move it to `in_progress`; gives how many it then has.

    None when it was told to end, or has ended. The last statement of a claim: a batch stopped before this lock is
    refused, one stopped after sees the leases.
    """
    statement = (
        update(Batch)
        .where(col(Batch.id) == batch_id, col(Batch.outcome).is_(None), col(Batch.state).in_(_CLAIMABLE))
        .values(live=col(Batch.live) + leases, state=BatchState.IN_PROGRESS)
        .execution_options(synchronize_session=False)
        .returning(col(Batch.live))
    )
    return session.execute(statement).scalar_one_or_none()
