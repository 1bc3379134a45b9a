"""Which workers of a pool are idle: ready, heard of lately, and holding nothing (PROTOCOL 6).

Asked by every claim and every ring, so it must not grow with the pool: a column that each call of a worker sets says
where to look, through an index of those alone that held nothing, and the leases of the few that are found decide.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Integer, bindparam, or_
from sqlmodel import Session, col, select

from app.db.leases import holders
from app.db.tables import Worker
from app.db.types import UtcMs
from app.domain.workers import Phase, WorkerState

SPARE = 8
"""So many more are looked at than are asked for: one that was given something just now may be among them."""

_HELD_NOTHING = (
    select(Worker.id)
    .where(
        col(Worker.pool) == bindparam("pool"),
        col(Worker.holds).is_(False),
        col(Worker.last_seen_at) > bindparam("seen_after", type_=UtcMs),
        col(Worker.state) == WorkerState.ACTIVE,
        or_(col(Worker.phase) == Phase.READY, col(Worker.phase).is_(None)),
        col(Worker.drain_requested_at).is_(None),
        col(Worker.id) != bindparam("but"),
    )
    .limit(bindparam("most", type_=Integer))
)


def idle_workers(
    session: Session, pool: str, *, seen_after: datetime, limit: int, but: str | None = None
) -> Sequence[str]:
    """Name up to `limit` idle workers of a pool.

    One that reports no phase is ready while it is heard of (A-19); one that is told to drain takes nothing more.
    """
    given = {"pool": pool, "seen_after": seen_after, "but": but or "", "most": limit + SPARE}
    found = session.exec(_HELD_NOTHING, params=given).all()
    if not found:
        return ()
    held = holders(session, found)
    return [worker_id for worker_id in found if worker_id not in held][:limit]
