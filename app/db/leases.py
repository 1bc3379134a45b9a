"""Leases in SQL. Every write of a worker locks its lease row first (app.db.locks); these run under that lock."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from sqlalchemy import BindParameter, bindparam, case, func, literal, union, update
from sqlmodel import Session, col, select

from app.db import locks
from app.db.pools import EVERY_POOL, PoolSet
from app.db.tables import Batch, Job, Lease, Pool, Worker
from app.db.types import UtcMs
from app.domain.leases import LIVE, ClaimEnd, LeaseState
from app.domain.workers import Transport, WorkerState

_LIVE = sorted(LIVE)
_WRITTEN_OUT: BindParameter[Any] = bindparam("live", _LIVE, expanding=True, literal_execute=True)
IS_LIVE = col(Lease.state).in_(_WRITTEN_OUT)
"""For a look at all live leases: of parameters SQLite does not know that an index of live leases holds them, and reads
every lease that is kept."""
# Asked by every claim, beat or hand-in, and built once: building one costs as much as running it.
_LIVE_OF = select(Lease.worker_id, Lease.id).where(
    col(Lease.worker_id).in_(bindparam("worker_ids", expanding=True)), col(Lease.state).in_(_LIVE)
)
_HOLDERS = (
    select(Lease.worker_id)
    .where(col(Lease.worker_id).in_(bindparam("worker_ids", expanding=True)), col(Lease.state).in_(_LIVE))
    .distinct()
)
_BATCHES_OF = (
    select(Lease.batch_id).where(col(Lease.worker_id) == bindparam("worker_id"), col(Lease.state).in_(_LIVE)).distinct()
)
_BY_REQUEST = (
    select(Lease)
    .where(col(Lease.worker_id) == bindparam("worker_id"), col(Lease.claim_request) == bindparam("request_id"))
    .order_by(col(Lease.id))
)
GHOST_BEATS = 2
"""Beats that a lease is not listed in, one after the other, before it is a ghost (PROTOCOL 2)."""
LAST_CLAIMS = 8
_IS_RETURNED = (col(Lease.state) == LeaseState.RELEASED) & (
    col(Lease.unstarted).is_(True) | (col(Lease.missed_beats) >= GHOST_BEATS)
)
_IS_OPEN = col(Lease.state).in_(_LIVE) & (col(Lease.renewed_at) == col(Lease.granted_at))
_CLAIM_ENDS = (
    select(
        func.min(case((_IS_RETURNED, 1), else_=0)),
        func.min(case((_IS_OPEN, 1), else_=0)),
        func.max(col(Lease.ended_at)),
        func.min(col(Lease.granted_at)),
    )
    .where(col(Lease.worker_id) == bindparam("worker_id"))
    .group_by(col(Lease.claim_request))
    .order_by(col(Lease.claim_request).desc())  # these begin with a time, and there is an index of them
    .limit(LAST_CLAIMS)
)
_STATES = select(Lease.id, Lease.state).where(
    col(Lease.id).in_(bindparam("ids", expanding=True)),
    col(Lease.worker_id) == bindparam("worker_id"),
    col(Lease.batch_id) == bindparam("batch_id"),
)


def live_of_worker(session: Session, worker_id: str) -> set[int]:
    """Give the ids of a worker's live leases: every beat asks, and a busy worker has a hundred."""
    return live_of_workers(session, [worker_id])[worker_id]


def live_of_workers(session: Session, worker_ids: Collection[str]) -> dict[str, set[int]]:
    """Give the ids of the live leases of each of these workers."""
    found: dict[str, set[int]] = {worker_id: set() for worker_id in worker_ids}
    for worker_id, lease_id in session.exec(_LIVE_OF, params={"worker_ids": sorted(found)}):
        if lease_id is not None:
            found[worker_id].add(lease_id)
    return found


def states_of(session: Session, ids: Collection[int], *, worker_id: str, batch_id: str) -> dict[int, str]:
    """Give the states of those of these leases that are of a worker and a batch, as they are without a lock."""
    found = session.exec(_STATES, params={"ids": sorted(ids), "worker_id": worker_id, "batch_id": batch_id})
    return {lease_id: state for lease_id, state in found if lease_id is not None}


def granted_before(session: Session, ids: Collection[int], at: datetime) -> set[int]:
    """Give those of these leases that were granted before `at`."""
    query = select(Lease.id).where(col(Lease.id).in_(sorted(ids)), col(Lease.granted_at) < at)
    return {lease_id for lease_id in session.exec(query) if lease_id is not None}


def holders(session: Session, worker_ids: Collection[str]) -> set[str]:
    """Name those of these workers that hold a live lease."""
    return set(session.exec(_HOLDERS, params={"worker_ids": sorted(worker_ids)}).all())


def by_request(session: Session, worker_id: str, request_id: str) -> Sequence[Lease]:
    """Read the leases that a claim was answered with, in whatever state they are now (PROTOCOL 2)."""
    return session.exec(_BY_REQUEST, params={"worker_id": worker_id, "request_id": request_id}).all()


def claim_ends(session: Session, worker_id: str, since: datetime) -> list[ClaimEnd]:
    """Return what became of a worker's last claims that were granted since then, the newest first."""
    found = session.execute(_CLAIM_ENDS, {"worker_id": worker_id})
    return [
        ClaimEnd(bool(returned), bool(is_open), ended_at)
        for returned, is_open, ended_at, granted_at in takewhile(lambda claim: claim[-1] >= since, found)
    ]


def job_of(session: Session, lease_id: int) -> Job | None:
    """Read the job of a lease."""
    return session.exec(
        select(Job).join(Lease, col(Lease.job_id) == col(Job.id)).where(col(Lease.id) == lease_id)
    ).first()


def batches_of_worker(session: Session, worker_id: str) -> Sequence[str]:
    """Name the batches that a worker holds live leases of."""
    return session.exec(_BATCHES_OF, params={"worker_id": worker_id}).all()


def renew_if_held(session: Session, ids: Collection[int], *, now: datetime, until: datetime) -> set[int]:
    """Renew those of `ids` (locked) that are still `held`, and give the ids that were. An overdue one is still held."""
    if not ids:
        return set()
    statement = (
        update(Lease)
        .where(col(Lease.id).in_(sorted(ids)), col(Lease.state) == LeaseState.HELD)
        .values(renewed_at=now, expires_at=until, missed_beats=0)
        .returning(col(Lease.id))
    )
    return set(session.execute(statement).scalars())


def mark_unstarted(session: Session, ids: Collection[int], *, unstarted: bool) -> None:
    """Note which live leases (locked) have no row begun, for telling a loss from bad luck (PROTOCOL 5)."""
    if ids:
        session.execute(
            update(Lease)
            .where(col(Lease.id).in_(sorted(ids)), col(Lease.unstarted).is_not(unstarted))
            .values(unstarted=unstarted)
        )


def mark_spooled(session: Session, ids: Collection[int]) -> None:
    """Note that the report of live leases (locked) is in their worker's spool: they end at their time, not now."""
    if ids:
        live = col(Lease.id).in_(sorted(ids)), col(Lease.state).in_(_LIVE)
        session.execute(update(Lease).where(*live).values(spooled=True))


def stop(session: Session, ids: Collection[int], *, until: datetime) -> None:
    """Move held leases (locked) to `stopping`; they end at `until` at the latest."""
    at = literal(until, UtcMs)
    end = (
        func.min(Lease.expires_at, at)
        if session.get_bind().dialect.name == "sqlite"
        else func.least(Lease.expires_at, at)
    )
    session.execute(
        update(Lease)
        .where(col(Lease.id).in_(sorted(ids)), col(Lease.state) == LeaseState.HELD)
        .values(state=LeaseState.STOPPING, expires_at=end)
    )


def overdue(session: Session, now: datetime, limit: int, *, of: PoolSet = EVERY_POOL) -> Sequence[int]:
    """Name live leases whose time is over, or whose worker said goodbye without naming a spooled report (R-05).

    `of`: the pools whose workers are looked at.
    """
    of_worker = col(Worker.id) == col(Lease.worker_id)
    live = select(Lease.id, Lease.expires_at).join(Worker, of_worker).where(IS_LIVE, of.of_worker)
    left = live.where(col(Worker.state) == WorkerState.GONE, col(Lease.spooled).is_(False))  # each by an index
    found = union(live.where(col(Lease.expires_at) < now), left).subquery()
    query = select(found.c.id).order_by(found.c.expires_at).limit(limit)
    return list(session.exec(query))


def postpone(session: Session, gap: timedelta, *, of: PoolSet = EVERY_POOL) -> int:
    """Add `gap` to the end of every live lease of these pools' workers (PROTOCOL 4), and count them."""
    locks.live_leases(session, of)
    ms = round(gap.total_seconds() * 1000)
    result = session.execute(
        update(Lease)
        .where(col(Lease.state).in_(_LIVE), col(Lease.worker_id).in_(select(Worker.id).where(of.of_worker)))
        .values(expires_at=col(Lease.expires_at) + ms)
        .execution_options(synchronize_session=False)
    )
    return result.rowcount  # type: ignore[attr-defined,no-any-return]


def by_batch(session: Session, worker_id: str, ids: Sequence[int]) -> dict[str, list[int]]:
    """Sort leases of a worker by their batch; ids that are not its own are left out."""
    query = select(Lease.batch_id, Lease.id).where(col(Lease.id).in_(ids), col(Lease.worker_id) == worker_id)
    found: dict[str, list[int]] = {}
    for batch_id, lease_id in session.exec(query.order_by(col(Lease.id))).all():
        found.setdefault(batch_id, []).append(int(lease_id or 0))
    return found


def pool_of(session: Session, batch_id: str) -> Pool | None:
    """Read the pool of a batch."""
    query = select(Pool).join(Batch, col(Batch.pool) == col(Pool.name)).where(col(Batch.id) == batch_id)
    return session.exec(query).first()


def reads_file(session: Session, org_id: str, file_id: str, *, worker_name: str | None = None) -> bool:
    """Whether a GPU worker of `org_id` (and of that name) holds a live lease of a batch whose input is this file.

    What a control worker of that org holds does not count: it validates the files of all orgs.
    """
    query = (
        select(Lease.id)
        .join(Batch, col(Batch.id) == col(Lease.batch_id))
        .join(Worker, col(Worker.id) == col(Lease.worker_id))
        .where(
            col(Batch.input_file_id) == file_id,
            col(Lease.state).in_(_LIVE),
            col(Worker.org_id) == org_id,
            col(Worker.transport) != Transport.CONTROL,
        )
    )
    if worker_name is not None:
        query = query.where(col(Worker.name) == worker_name)
    return session.exec(query.limit(1)).first() is not None
