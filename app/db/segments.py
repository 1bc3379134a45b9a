"""Segments in SQL: finished rows that are stored, and where (PROTOCOL 5)."""

from collections.abc import Collection, Sequence

from sqlmodel import Session, col, select, tuple_

from app.db.events import settled
from app.db.tables import Segment


def by_sequence(session: Session, keys: Collection[tuple[int, int]]) -> dict[tuple[int, int], Segment]:
    """Read segments by (lease, seq)."""
    if not keys:
        return {}
    query = select(Segment).where(tuple_(col(Segment.lease_id), col(Segment.seq)).in_(sorted(keys)))
    return {(segment.lease_id, segment.seq): segment for segment in session.exec(query).all()}


def of_jobs(session: Session, job_ids: Collection[int]) -> dict[int, list[Segment]]:
    """Read the segments of jobs, in the order stored."""
    query = select(Segment).where(col(Segment.job_id).in_(sorted(job_ids))).order_by(col(Segment.id))
    found: dict[int, list[Segment]] = {}
    for segment in session.exec(query).all():
        found.setdefault(segment.job_id, []).append(segment)
    return found


def stored_after(session: Session, batch_id: str, after: int, limit: int) -> Sequence[Segment]:
    """Read a batch's segments behind the cursor `after`, none that an open transaction may still undercut."""
    query = (
        select(Segment)
        .where(col(Segment.batch_id) == batch_id, col(Segment.id) > after, settled(session, col(Segment.txid)))
        .order_by(col(Segment.id))
        .limit(limit)
    )
    return session.exec(query).all()


def with_failures(session: Session, batch_id: str, limit: int) -> Sequence[Segment]:
    """Read the batch's last segments that hold failed rows, newest first."""
    query = (
        select(Segment)
        .where(col(Segment.batch_id) == batch_id, col(Segment.failed) > 0)
        .order_by(col(Segment.id).desc())
        .limit(limit)
    )
    return session.exec(query).all()


def of_blob(session: Session, key: str) -> Sequence[Segment]:
    """Read the segments of a hand-in, which are of one batch."""
    return session.exec(select(Segment).where(col(Segment.blob_key) == key).order_by(col(Segment.id))).all()
