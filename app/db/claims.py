"""What a claim looks at: the batches of a pool in order.

Bounded reads through indexes only; never an aggregate over jobs (PROTOCOL 7).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

from sqlalchemy import BindParameter, ColumnElement, Integer, bindparam, exists, func, or_, tuple_, union_all, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app.db.batches import WITHOUT_LISTS
from app.db.tables import Batch, Job
from app.db.types import UtcMs
from app.domain.batches import CLAIMABLE, BatchState
from app.domain.jobs import JobKind, JobState

WINDOW = 32
_CLAIMABLE = sorted(CLAIMABLE)
_COUNT_LIVE = (
    update(Batch)
    .where(col(Batch.id) == bindparam("wanted"), col(Batch.outcome).is_(None), col(Batch.state).in_(_CLAIMABLE))
    .values(live=col(Batch.live) + bindparam("more", type_=Integer), state=BatchState.IN_PROGRESS)
    .execution_options(synchronize_session=False)
    .returning(col(Batch.live))
)


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
    found = select(Batch).where(col(Batch.seq).in_(either)).order_by(*order).limit(limit)
    return found.options(*WITHOUT_LISTS)


def waiting_batch(session: Session, pool: str, batch_id: str, now: datetime) -> Batch | None:
    """Read one batch of a pool, if it has a queued shard that may be claimed."""
    query = select(Batch).where(col(Batch.id) == batch_id, col(Batch.pool) == pool, *_waiting(now))
    return session.exec(query.options(*WITHOUT_LISTS)).first()


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


def count_live(session: Session, batch_id: str, leases: int) -> int | None:
    """Count new leases on their batch and move it to `in_progress`; gives how many it then has.

    None when it was told to end, or has ended. The last statement of a claim: a batch stopped before this lock is
    refused, one stopped after sees the leases.
    """
    return session.execute(_COUNT_LIVE, {"wanted": batch_id, "more": leases}).scalar_one_or_none()
