"""Jobs in SQL: taking queued ones, and what is known of a batch's jobs together."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Integer, bindparam, case, exists, func, or_, update
from sqlmodel import Session, col, select

from app.db.tables import Batch, File, Job, Lease
from app.db.types import UtcMs
from app.domain.jobs import OF_BATCH, UNCOUNTED, ControlVerb, JobKind, JobState

_NOW = bindparam("now", type_=UtcMs)
# Asked by every claim, and built once: building one costs as much as running it.
_TAKE_SHARDS = (
    select(Job)
    .where(
        col(Job.batch_id) == bindparam("batch_id"),
        col(Job.kind) == JobKind.SHARD,
        col(Job.state) == JobState.QUEUED,
        col(Job.cautious_at).is_(None),
        col(Job.requirement_key).in_(bindparam("keys", expanding=True)),
        or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= _NOW),
        col(Job.id).not_in(bindparam("but", expanding=True)),
    )
    .order_by(case((col(Job.last_worker_id) == bindparam("worker_id"), 1), else_=0), col(Job.number))
    .limit(bindparam("most", type_=Integer))
    .with_for_update(key_share=True, skip_locked=True)
)
_TOLD_TO_END = exists().where(col(Batch.id) == col(Job.batch_id), col(Batch.outcome).is_not(None)).correlate(Job)
_DUE = (
    col(Job.kind) == JobKind.CONTROL,
    col(Job.state) == JobState.QUEUED,
    col(Job.verb).in_(OF_BATCH),
    or_(col(Job.verb) == ControlVerb.FINALIZE, ~_TOLD_TO_END),  # such a batch is validated no more
    or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= _NOW),
)
_DUE_CONTROL = (
    select(Job.id, Job.verb, Job.batch_id, File.bytes)
    .join(Batch, col(Batch.id) == col(Job.batch_id))
    .join(File, col(File.id) == col(Batch.input_file_id))
    .where(*_DUE)
    .order_by(col(Job.id))
    .limit(1)
)
_TAKE_CONTROL = (
    select(Job).where(*_DUE).order_by(col(Job.id)).limit(1).with_for_update(key_share=True, skip_locked=True)
)
_TAKE_NAMED = _TAKE_CONTROL.where(col(Job.id) == bindparam("job_id"))


def take_shards(
    session: Session,
    batch_id: str,
    *,
    keys: Collection[str],
    worker_id: str,
    now: datetime,
    limit: int,
    but: Collection[int] = (),
) -> Sequence[Job]:
    """Lock queued shards of a batch that need one of `keys`, in order; those that are better run by another come last.

    Cautious ones are taken another way (app.services.cautious).

    `but` are those that this transaction has locked before. Lock no more than are taken: others skip what is locked.
    """
    given = {
        "batch_id": batch_id,
        "keys": sorted(keys),
        "worker_id": worker_id,
        "now": now,
        "but": sorted(but),
        "most": limit,
    }
    return session.exec(_TAKE_SHARDS, params=given).all()


def shard_waits(session: Session, batch_id: str, *, keys: Collection[str], now: datetime) -> bool:
    """Tell whether a batch has a queued shard that needs one of `keys`; cautious ones do not count."""
    query = (
        select(Job.id)
        .where(
            col(Job.batch_id) == batch_id,
            col(Job.kind) == JobKind.SHARD,
            col(Job.state) == JobState.QUEUED,
            col(Job.cautious_at).is_(None),
            col(Job.requirement_key).in_(sorted(keys)),
            or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= now),
        )
        .limit(1)
    )
    return session.exec(query).first() is not None


class DueControl(NamedTuple):
    """A piece of a batch's own control work that is due. `input_bytes`: as many has its batch's input."""

    job_id: int
    verb: str
    batch_id: str
    input_bytes: int


def due_control(session: Session, now: datetime) -> DueControl | None:
    """Read the oldest due piece of a batch's own control work, without locking it."""
    row = session.execute(_DUE_CONTROL, {"now": now}).first()
    return DueControl(*row) if row is not None else None


def take_control(session: Session, now: datetime, *, job_id: int | None = None) -> Job | None:
    """Lock the oldest due piece of a batch's own control work, or the one named if it still is due."""
    if job_id is not None:
        return session.exec(_TAKE_NAMED, params={"now": now, "job_id": job_id}).first()
    return session.exec(_TAKE_CONTROL, params={"now": now}).first()


def validate_now(session: Session, batch_ids: Collection[str]) -> None:
    """Have validations that were put off be due."""
    session.execute(
        update(Job)
        .where(
            col(Job.batch_id).in_(sorted(batch_ids)),
            col(Job.kind) == JobKind.CONTROL,
            col(Job.verb) == ControlVerb.VALIDATE,
            col(Job.state) == JobState.QUEUED,
        )
        .values(not_before_at=None)
    )


def lock_queued(session: Session, batch_id: str, limit: int) -> Sequence[Job]:
    """Lock queued jobs of a batch that count as open, in id order."""
    query = (
        select(Job)
        .where(
            col(Job.batch_id) == batch_id,
            col(Job.state) == JobState.QUEUED,
            col(Job.verb).not_in(sorted(UNCOUNTED)),
        )
        .order_by(col(Job.id))
        .limit(limit)
    )
    return session.exec(query.with_for_update(key_share=True)).all()


def shards(session: Session, batch_id: str, *, after: int = -1, limit: int = 500) -> Sequence[Job]:
    """Read a batch's shards in input order, those numbered above `after`."""
    query = (
        select(Job)
        .where(col(Job.batch_id) == batch_id, col(Job.kind) == JobKind.SHARD, col(Job.number) > after)
        .order_by(col(Job.number))
        .limit(limit)
    )
    return session.exec(query).all()


def by_ids(session: Session, ids: Collection[int]) -> dict[int, Job]:
    """Read jobs by id."""
    return {job.id: job for job in session.exec(select(Job).where(col(Job.id).in_(sorted(ids)))) if job.id is not None}


def content_tries(session: Session, lease_id: int) -> int:
    """Read how many tries of a lease's job found a content missing."""
    query = select(Job.content_tries).join(Lease, col(Lease.job_id) == col(Job.id)).where(col(Lease.id) == lease_id)
    return session.exec(query).first() or 0


def with_input_sums(session: Session, after: int, limit: int) -> Sequence[Job]:
    """Read shards that have not ended and whose input has a checksum, those behind `after`."""
    query = (
        select(Job)
        .where(
            col(Job.kind) == JobKind.SHARD,
            col(Job.state).in_([JobState.QUEUED, JobState.LEASED]),
            col(Job.input_sum).is_not(None),
            col(Job.id) > after,
        )
        .order_by(col(Job.id))
        .limit(limit)
    )
    return session.exec(query).all()


def some_completed(session: Session, batch_id: str) -> bool:
    """Tell whether a row of a batch was answered and is stored."""
    query = select(Job.id).where(col(Job.batch_id) == batch_id, col(Job.kind) == JobKind.SHARD, col(Job.completed) > 0)
    return session.exec(query.limit(1)).first() is not None


def queued_shards(session: Session, batch_id: str, limit: int) -> int:
    """Count queued shards, up to `limit`."""
    found = (
        select(Job.id)
        .where(col(Job.batch_id) == batch_id, col(Job.kind) == JobKind.SHARD, col(Job.state) == JobState.QUEUED)
        .limit(limit)
        .subquery()
    )
    return int(session.execute(select(func.count()).select_from(found)).scalar_one())


def control_waits(session: Session, *, since: datetime) -> bool:
    """Tell whether a piece of control work is queued that was due before `since`."""
    query = (
        select(Job.id)
        .where(
            col(Job.kind) == JobKind.CONTROL,
            col(Job.state) == JobState.QUEUED,
            col(Job.created_at) <= since,
            or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= since),
        )
        .limit(1)
    )
    return session.exec(query).first() is not None
