"""The figures of the whole service in SQL: seven bounded reads through indexes, whatever the size of the database.

A job is never counted: batches carry counters (PROTOCOL 7). No statement looks at more than `LIMIT` rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Text, and_, case, cast, func, select, type_coerce, union_all
from sqlmodel import Session, col

from app.db.events import settled
from app.db.leases import IS_LIVE
from app.db.tables import Batch, Event, Job, Lease, Worker
from app.db.workers import TIMING
from app.domain.batches import CLAIMABLE, ENDED, TOLD_TO_END, BatchState
from app.domain.jobs import ControlVerb, JobKind, JobState
from app.domain.workers import Transport, WorkerState

LIMIT = 25_000
"""Rows that one statement looks at: of batches in each state, of leases, workers, control work and new events."""
WORKERS_TOLD = 200
"""Workers that are shown one by one, the longest known first."""
_OPEN = sorted(set(BatchState) - ENDED)
_THERE = sorted(set(WorkerState) - {WorkerState.GONE})


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Batches of a pool in one state. `queued` shards nobody holds; `waits_since`: the oldest batch of none held."""

    pool: str
    state: str
    stops: bool
    batches: int
    queued: int
    waits_since: datetime | None


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """Live leases of a pool's workers in one state."""

    pool: str
    state: str
    leases: int
    overdue: int
    granted_at: datetime
    renewed_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """Workers that have not left, alike in all that their state is read from, and last seen in the same second."""

    pool: str
    state: str
    transport: str
    timing: Mapping[str, float]
    workers: int
    last_seen_at: datetime
    offline_at: datetime | None


@dataclass(frozen=True, slots=True)
class HostRow:
    """What a GPU worker last said of its host and its runtimes."""

    pool: str
    name: str
    last_seen_at: datetime
    sample: Mapping[str, Any] | None
    runtimes: Sequence[Mapping[str, Any]]


def batches(session: Session) -> list[BatchRow]:
    """Group the batches that have not ended; of each state those whose window ends first."""
    looked_at = (
        select(
            col(Batch.pool),
            col(Batch.state),
            col(Batch.outcome),
            col(Batch.open_jobs),
            col(Batch.live),
            col(Batch.validated_at),
        )
        .where(col(Batch.state) == state)
        .order_by(col(Batch.expires_at))
        .limit(LIMIT)
        .subquery()
        for state in _OPEN
    )
    found = union_all(*(select(part) for part in looked_at)).subquery()
    stops = func.coalesce(found.c.outcome, "").in_(sorted(TOLD_TO_END))
    runs = and_(found.c.state.in_(sorted(CLAIMABLE)), ~stops)
    unheld = and_(found.c.state == BatchState.VALIDATED, ~stops)
    query = select(
        found.c.pool,
        found.c.state,
        stops,
        func.count(),
        func.sum(case((runs, found.c.open_jobs - found.c.live), else_=0)),
        func.min(case((unheld, found.c.validated_at))),
    ).group_by(found.c.pool, found.c.state, stops)
    return [
        BatchRow(pool, state, bool(stop), int(count), int(queued), since)
        for pool, state, stop, count, queued, since in session.execute(query)
    ]


def control_work(session: Session, verbs: Collection[ControlVerb]) -> tuple[int, datetime | None]:
    """Count the pieces of such control work that nobody holds, and say since when the oldest is there."""
    found = (
        select(col(Job.created_at))
        .where(col(Job.kind) == JobKind.CONTROL, col(Job.state) == JobState.QUEUED, col(Job.verb).in_(sorted(verbs)))
        .limit(LIMIT)
        .subquery()
    )
    count, oldest = session.execute(select(func.count(), func.min(found.c.created_at)).select_from(found)).one()
    return int(count), oldest


def leases(session: Session, now: datetime) -> list[LeaseRow]:
    """Group the live leases by their workers' pool; those that end first, which are the longest silent ones."""
    found = (
        select(
            col(Lease.worker_id), col(Lease.state), col(Lease.granted_at), col(Lease.renewed_at), col(Lease.expires_at)
        )
        .where(IS_LIVE)
        .order_by(col(Lease.expires_at))
        .limit(LIMIT)
        .subquery()
    )
    query = (
        select(
            col(Worker.pool),
            found.c.state,
            func.count(),
            func.sum(case((found.c.expires_at < now, 1), else_=0)),
            func.min(found.c.granted_at),
            func.min(found.c.renewed_at),
        )
        .join(Worker, col(Worker.id) == found.c.worker_id)
        .group_by(col(Worker.pool), found.c.state)
    )
    return [
        LeaseRow(pool, state, int(count), int(overdue), granted_at, renewed_at)
        for pool, state, count, overdue, granted_at, renewed_at in session.execute(query)
    ]


def workers(session: Session) -> list[WorkerRow]:
    """Group the workers that have not left: thousands that beat are a few rows for each second of a beat."""
    found = (
        select(
            col(Worker.pool),
            col(Worker.state),
            col(Worker.transport),
            cast(col(Worker.timing), Text).label("timing"),  # PostgreSQL compares no JSON
            col(Worker.last_seen_at),
            col(Worker.offline_at),
            (type_coerce(col(Worker.last_seen_at), BigInteger) // 1000).label("second"),
            col(Worker.offline_at).is_(None).label("is_heard"),
        )
        .where(col(Worker.state).in_(_THERE))
        .limit(LIMIT)
        .subquery()
    )
    alike = (found.c.pool, found.c.state, found.c.transport, found.c.timing)
    query = select(*alike, func.count(), func.max(found.c.last_seen_at), func.max(found.c.offline_at)).group_by(
        *alike, found.c.second, found.c.is_heard
    )
    return [
        WorkerRow(pool, state, transport, TIMING.read_text(timing), int(count), last_seen_at, offline_at)
        for pool, state, transport, timing, count, last_seen_at, offline_at in session.execute(query)
    ]


def hosts(session: Session) -> list[HostRow]:
    """Read what GPU workers said of their hosts; the same ones each time, as long as they stay."""
    query = (
        select(col(Worker.pool), col(Worker.name), col(Worker.last_seen_at), col(Worker.sample), col(Worker.runtimes))
        .where(col(Worker.state).in_(_THERE), col(Worker.transport) != Transport.CONTROL)
        .order_by(col(Worker.id))
        .limit(WORKERS_TOLD)
    )
    return [HostRow(*row) for row in session.execute(query)]


def new_events(session: Session, after: int) -> tuple[dict[str, int], int, bool]:
    """Count events behind the cursor by type; gives the next cursor, and whether there are more."""
    found = (
        select(col(Event.seq), col(Event.type))
        .where(col(Event.seq) > after, settled(session, col(Event.txid)))
        .order_by(col(Event.seq))
        .limit(LIMIT)
        .subquery()
    )
    query = select(found.c.type, func.count(), func.max(found.c.seq)).group_by(found.c.type)
    counts: dict[str, int] = {}
    for type_, count, last in session.execute(query):
        counts[type_] = int(count)
        after = max(after, last)
    return counts, after, sum(counts.values()) == LIMIT
