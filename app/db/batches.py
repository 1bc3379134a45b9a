"""Batches in SQL: finding, listing and counting them. Their states change in app.services.moves only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, update
from sqlalchemy.orm import defer
from sqlmodel import Session, col, select

from app.db.tables import Batch, Job, Lease, Segment, Worker
from app.domain.batches import CLAIMABLE, BatchState
from app.domain.jobs import JobKind, JobState
from app.domain.leases import LIVE
from app.domain.rows import Usage

_LIVE = sorted(LIVE)
_CLAIMABLE = sorted(CLAIMABLE)
_PACE_SEGMENTS = 64
_COUNTED_BATCHES = 1000


WITHOUT_LISTS = (defer(Batch.requirements), defer(Batch.models))  # type: ignore[arg-type]
"""For the statements of claims, heartbeats and hand-ins, which want no long list; one is read when it is asked for."""
_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Tally:
    """What a batch's shards have stored so far."""

    completed: int = 0
    failed: int = 0
    usage: Usage = _NOTHING
    answers_off_format: int = 0
    answers_other_model: int = 0


def by_id(session: Session, batch_id: str) -> Batch | None:
    """Read a batch of whatever org, without locking it."""
    return session.exec(select(Batch).where(col(Batch.id) == batch_id)).first()


def by_ids(session: Session, batch_ids: Collection[str]) -> Sequence[Batch]:
    """Read batches of whatever orgs."""
    return session.exec(select(Batch).where(col(Batch.id).in_(sorted(batch_ids)))).all()


def find(session: Session, batch_id: str, org_id: str) -> Batch | None:
    """Find an org's batch."""
    return session.exec(select(Batch).where(col(Batch.id) == batch_id, col(Batch.org_id) == org_id)).first()


def asking(session: Session, pool: str) -> Sequence[tuple[str, datetime]]:
    """Name the batches that wait for workers of a pool to list their models again, and since when each does."""
    query = select(Batch.id, Batch.models_asked_at).where(
        col(Batch.pool) == pool,
        col(Batch.state) == BatchState.VALIDATING,
        col(Batch.models_asked_at).is_not(None),
        col(Batch.outcome).is_(None),
    )
    return [(batch_id, asked_at) for batch_id, asked_at in session.exec(query).all() if asked_at is not None]


def page(session: Session, org_id: str, *, after_seq: int | None, limit: int) -> Sequence[Batch]:
    """Read an org's batches behind a cursor, newest first."""
    query = select(Batch).where(col(Batch.org_id) == org_id)
    if after_seq is not None:
        query = query.where(col(Batch.seq) < after_seq)
    return session.exec(query.order_by(col(Batch.seq).desc()).limit(limit)).all()


def seq_of(session: Session, batch_id: str, org_id: str) -> int | None:
    """Give a batch's place in the order."""
    return session.exec(select(Batch.seq).where(col(Batch.id) == batch_id, col(Batch.org_id) == org_id)).first()


def tallies(session: Session, ids: Collection[str]) -> Mapping[str, Tally]:
    """Sum the counts of the batches' shards."""
    if not ids:
        return {}
    query = (
        select(
            Job.batch_id,
            *(
                func.coalesce(func.sum(column), 0)
                for column in (
                    col(Job.completed),
                    col(Job.failed),
                    col(Job.input_tokens),
                    col(Job.cached_tokens),
                    col(Job.output_tokens),
                    col(Job.reasoning_tokens),
                    col(Job.total_tokens),
                    col(Job.answers_off_format),
                    col(Job.answers_other_model),
                )
            ),
        )
        .where(col(Job.batch_id).in_(sorted(ids)), col(Job.kind) == JobKind.SHARD)
        .group_by(col(Job.batch_id))
    )
    rows = session.execute(query).all()
    return {row[0]: _tally([int(count) for count in row[1:]]) for row in rows}


def _tally(counts: Sequence[int]) -> Tally:
    completed, failed, *tokens, off_format, other_model = counts
    return Tally(completed, failed, Usage(*tokens), off_format, other_model)


def workers_on(session: Session, ids: Collection[str]) -> Mapping[str, int]:
    """Count the workers that hold live leases of the batches' shards."""
    if not ids:
        return {}
    query = (
        select(Job.batch_id, func.count(func.distinct(col(Lease.worker_id))))
        .join(Lease, and_(col(Lease.job_id) == col(Job.id), col(Lease.state).in_(_LIVE)))
        .where(col(Job.batch_id).in_(sorted(ids)), col(Job.kind) == JobKind.SHARD, col(Job.state) == JobState.LEASED)
        .group_by(col(Job.batch_id))
    )
    return {batch_id: int(count) for batch_id, count in session.execute(query).all()}


def holders(session: Session, batch_id: str) -> Sequence[Worker]:
    """Read the workers that hold live leases of a batch, by name."""
    # Begun at the batch's leases: asked whether each worker holds one, SQLite looks at all workers there are.
    holding = select(Lease.worker_id).where(col(Lease.batch_id) == batch_id, col(Lease.state).in_(_LIVE))
    return session.exec(select(Worker).where(col(Worker.id).in_(holding)).order_by(col(Worker.name))).all()


def pace(session: Session, batch_id: str, now: datetime) -> float | None:
    """Give the rows a second over the last hand-ins (a bounded number), None before there were two."""
    latest = (
        select(Segment.stored_at, (col(Segment.completed) + col(Segment.failed)).label("rows"))
        .where(col(Segment.batch_id) == batch_id)
        .order_by(col(Segment.id).desc())
        .limit(_PACE_SEGMENTS)
    )
    found = session.execute(latest).all()
    # The oldest one only says when counting began: its rows were done before.
    seconds = (now - found[-1][0]).total_seconds() if len(found) > 1 else 0
    return sum(rows for _, rows in found[:-1]) / seconds if seconds > 0 else None


def shard_errors(session: Session, batch_id: str, limit: int) -> Sequence[tuple[str, int, str | None]]:
    """Give why rows failed with their shard: code, how many rows it ended, one message.

    A shard that failed and then went well elsewhere ended no row, nor did one end the rows that it had handed in.
    """
    handed_in = (
        select(func.coalesce(func.sum(col(Segment.completed) + col(Segment.failed)), 0))
        .where(col(Segment.job_id) == col(Job.id))
        .correlate(Job)
        .scalar_subquery()
    )
    rows = func.sum(col(Job.rows) - handed_in)
    query = (
        select(Job.error_code, rows, func.min(Job.error_message))
        .where(
            col(Job.batch_id) == batch_id,
            col(Job.kind) == JobKind.SHARD,
            col(Job.state) == JobState.FAILED,
            col(Job.error_code).is_not(None),
        )
        .group_by(col(Job.error_code))
        .order_by(rows.desc(), col(Job.error_code))
        .limit(limit)
    )
    return [(str(code), int(count), message) for code, count, message in session.execute(query).all()]


def earlier(session: Session, batch: Batch) -> int:
    """Count the claimable batches of the pool that stand before this one, up to a bound."""
    before = or_(
        col(Batch.rank) < batch.rank,
        and_(col(Batch.rank) == batch.rank, col(Batch.expires_at) < batch.expires_at),
        and_(
            col(Batch.rank) == batch.rank, col(Batch.expires_at) == batch.expires_at, col(Batch.seq) < (batch.seq or 0)
        ),
    )
    query = (
        select(Batch.seq)
        .where(col(Batch.pool) == batch.pool, col(Batch.state).in_(_CLAIMABLE), col(Batch.outcome).is_(None), before)
        .limit(_COUNTED_BATCHES)
    )
    return session.exec(select(func.count()).select_from(query.subquery())).one()


def retried(session: Session, *, token_id: str, digest: str, since: datetime, below: int) -> Batch | None:
    """Lock the newest batch that a retried create may mean: young, not seen by its token, retried less often."""
    query = (
        select(Batch)
        .where(
            col(Batch.token_id) == token_id,
            col(Batch.args_digest) == digest,
            col(Batch.created_at) > since,
            col(Batch.seen).is_(False),
            col(Batch.retry_count) < below,
        )
        .order_by(col(Batch.seq).desc())
        .limit(1)
    )
    return session.exec(query.with_for_update(key_share=True)).first()


def by_idempotency_key(session: Session, *, token_id: str, key: str, since: datetime) -> Batch | None:
    """Find the batch that a token made with an idempotency key."""
    query = select(Batch).where(
        col(Batch.token_id) == token_id, col(Batch.idempotency_key) == key, col(Batch.created_at) > since
    )
    return session.exec(query.order_by(col(Batch.seq).desc()).limit(1)).first()


def mark_seen(session: Session, ids: Collection[str]) -> None:
    """Note that the token that made these batches knows of them: no later create is a retry of theirs."""
    session.execute(update(Batch).where(col(Batch.id).in_(sorted(ids)), col(Batch.seen).is_(False)).values(seen=True))


def retried_by(session: Session, ids: Collection[str]) -> Mapping[str, list[str]]:
    """Name the batches that run rows of these again, in the order they were made."""
    if not ids:
        return {}
    query = select(Batch.retry_of, Batch.id).where(col(Batch.retry_of).in_(sorted(ids))).order_by(col(Batch.seq))
    found: dict[str, list[str]] = {}
    for retry_of, batch_id in session.execute(query).all():
        found.setdefault(retry_of, []).append(batch_id)
    return found


def retries(session: Session, batch_id: str, limit: int) -> list[Batch]:
    """Read the batches that run rows of this one again, and those that run theirs, up to `limit`; oldest first."""
    found: list[Batch] = []
    ids = [batch_id]
    while ids and len(found) < limit:
        query = select(Batch).where(col(Batch.retry_of).in_(ids)).order_by(col(Batch.seq)).limit(limit - len(found))
        batches = session.exec(query).all()
        found += batches
        ids = [batch.id for batch in batches]
    return sorted(found, key=lambda batch: batch.seq or 0)


def open_count(session: Session, org_id: str, limit: int) -> int:
    """Count the batches of an org that have not ended, as far as `limit`."""
    some = select(Batch.id).where(col(Batch.org_id) == org_id, col(Batch.ended_at).is_(None)).limit(limit)
    return session.exec(select(func.count()).select_from(some.subquery())).one()
