"""What is kept of batches that have ended, in SQL: segments go first, then jobs and leases, then the batch itself.

Whoever deletes here holds `LOCK`, so that of two sweeps one waits. Nothing else writes what is of an ended batch, but
for the leases and jobs that tell webhook endpoints of it; those are left until they have ended.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, or_, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from app.db import exclusive
from app.db.tables import Batch, Blob, File, Job, Lease, Segment
from app.domain.jobs import ENDED, ControlVerb, JobKind
from app.domain.leases import LIVE
from app.domain.retention import Kept

LOCK = "retention"
_LIVE = sorted(LIVE)
_ENDED_JOBS = sorted(ENDED)


def hold(session: Session) -> None:
    """Be the only one that deletes, until this transaction ends. The first lock of all (PROTOCOL 1)."""
    exclusive.hold(session, [LOCK])


def due(session: Session, kept: Kept, before: datetime, limit: int) -> Sequence[Batch]:
    """Read batches of which so much is kept, and that ended before `before`; oldest first."""
    query = (
        select(Batch)
        .where(col(Batch.kept) == kept, col(Batch.ended_at) < before)
        .order_by(col(Batch.ended_at))
        .limit(limit)
    )
    return session.exec(query).all()


def files(session: Session, batch: Batch) -> Sequence[tuple[File, Blob]]:
    """Read a batch's result files that users may still read, with their blobs."""
    ids = [file_id for file_id in (batch.output_file_id, batch.error_file_id) if file_id is not None]
    query = (
        select(File, Blob)
        .join(Blob, col(Blob.key) == col(File.blob_key))
        .where(col(File.id).in_(ids), col(File.hidden_at).is_(None))
    )
    return session.exec(query).all()


def delete_segments(session: Session, batch_id: str, limit: int, now: datetime) -> int:
    """Delete segments of a batch, and say of the blobs that held nothing else that nobody needs them; count them."""
    some = select(Segment.id).where(col(Segment.batch_id) == batch_id).order_by(col(Segment.id)).limit(limit)
    ids = [segment_id for segment_id in session.exec(some).all() if segment_id is not None]
    if not ids:
        return 0
    gone = delete(Segment).where(col(Segment.id).in_(ids)).returning(col(Segment.blob_key))
    keys = set(session.execute(gone).scalars())
    session.execute(
        update(Blob)
        .where(
            col(Blob.key).in_(sorted(keys)),
            col(Blob.unreferenced_at).is_(None),
            ~exists().where(col(Segment.blob_key) == col(Blob.key)),
        )
        .values(unreferenced_at=now)
        .execution_options(synchronize_session=False)
    )
    return len(ids)


def delete_jobs(session: Session, batch_id: str, limit: int) -> int:
    """Delete jobs of a batch and their leases, but those that tell webhook endpoints; count the jobs."""
    return _delete(session, _some(session, limit, col(Job.batch_id) == batch_id, col(Job.verb) != ControlVerb.DELIVER))


def delete_told(session: Session, before: datetime, limit: int) -> int:
    """Delete jobs that told webhook endpoints of an end, or gave up, before `before`; count them.

    An earlier round stays for as long as a later one is known: the `webhook-id` of all of them is the first one's.
    """
    later = aliased(Job)
    goes_on = exists().where(
        col(later.batch_id) == col(Job.batch_id),
        col(later.kind) == JobKind.CONTROL,
        col(later.verb) == ControlVerb.DELIVER,
        col(later.endpoint_id) == col(Job.endpoint_id),
        col(later.id) > col(Job.id),
        or_(col(later.ended_at).is_(None), col(later.ended_at) >= before),
    )
    return _delete(
        session, _some(session, limit, col(Job.endpoint_id).is_not(None), col(Job.ended_at) < before, ~goes_on)
    )


def delete_batches(session: Session, before: datetime, limit: int) -> Sequence[Batch]:
    """Delete batches that ended before `before` and of which nothing else is kept; gives them as they were.

    One whose end a webhook endpoint is still to be told of stays.
    """
    untold = exists().where(col(Job.batch_id) == col(Batch.id), col(Job.state).not_in(_ENDED_JOBS))
    query = (
        select(Batch)
        .where(col(Batch.kept) == Kept.BATCH, col(Batch.ended_at) < before, ~untold)
        .order_by(col(Batch.ended_at))
        .limit(limit)
    )
    batches = session.exec(query).all()
    ids = [batch.id for batch in batches]
    if ids:
        session.execute(delete(Lease).where(col(Lease.batch_id).in_(ids)))
        session.execute(delete(Job).where(col(Job.batch_id).in_(ids)))
        session.execute(delete(Batch).where(col(Batch.id).in_(ids)).execution_options(synchronize_session=False))
    return batches


def _some(session: Session, limit: int, *of: ColumnElement[bool]) -> list[int]:
    query = select(Job.id).where(*of, col(Job.state).in_(_ENDED_JOBS)).order_by(col(Job.id)).limit(limit)
    return [job_id for job_id in session.exec(query).all() if job_id is not None]


def _delete(session: Session, job_ids: Collection[int]) -> int:
    """Leases before jobs, as everybody locks them (PROTOCOL 1)."""
    if job_ids:
        ended = (col(Lease.job_id).in_(job_ids), col(Lease.state).not_in(_LIVE))
        session.execute(delete(Lease).where(*ended).execution_options(synchronize_session=False))
        session.execute(delete(Job).where(col(Job.id).in_(job_ids)).execution_options(synchronize_session=False))
    return len(job_ids)
