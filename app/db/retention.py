"""What has lived long enough, in SQL. Contents go before rows, and nothing goes that a running batch needs."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, exists, func, literal, or_, update
from sqlmodel import Session, col, select

from app.db.tables import Batch, Blob, Event, File, Job, Lease, Segment, WebhookEndpoint, Worker
from app.db.types import UtcMs
from app.domain.batches import ENDED

_ENDED = sorted(ENDED)
_REFERRED = or_(
    exists().where(col(File.blob_key) == col(Blob.key)), exists().where(col(Segment.blob_key) == col(Blob.key))
)
_BLINDLY = {"synchronize_session": False}


def hide_expired_files(session: Session, now: datetime, limit: int) -> Sequence[File]:
    """Hide files whose time is over, and give them."""
    query = select(File).where(col(File.expires_at) <= now, col(File.hidden_at).is_(None)).limit(limit)
    found = session.exec(query.with_for_update(key_share=True, skip_locked=True)).all()
    for file in found:
        file.hidden_at = now
        session.add(file)
    return found


def orphans(session: Session, before: datetime, limit: int) -> Sequence[str]:
    """Name blobs that nothing refers to since before `before`: writes that never came to an end, deleted segments."""
    found: list[str] = []
    for index in (
        (col(Blob.put_at).is_(None), col(Blob.created_at) < before),
        (col(Blob.unreferenced_at) < before, col(Blob.collected_at).is_(None)),
    ):
        query = select(Blob.key).where(*index, ~_REFERRED).limit(limit - len(found))
        found += [key for key in session.exec(query) if key not in found]
    return found


def hidden_contents(session: Session, before: datetime, limit: int) -> Sequence[str]:
    """Name blobs of files hidden before `before` that no batch still needs."""
    needed = exists().where(col(Batch.input_file_id) == col(File.id), col(Batch.state).not_in(_ENDED))
    query = (
        select(Blob.key)
        .join(File, col(File.blob_key) == col(Blob.key))
        .where(col(File.hidden_at) < before, col(Blob.collected_at).is_(None), ~needed)
        .limit(limit)
    )
    return session.exec(query).all()


def mark_collected(session: Session, keys: Collection[str], now: datetime) -> None:
    """Say that blobs' contents were deleted."""
    session.execute(update(Blob).where(col(Blob.key).in_(keys)).values(collected_at=now).execution_options(**_BLINDLY))


def mark_orphans(session: Session, keys: Collection[str], now: datetime) -> Sequence[str]:
    """Say that nothing will ever refer to blobs; gives those whose writers were not quicker."""
    statement = (
        update(Blob)
        .where(col(Blob.key).in_(keys), or_(col(Blob.put_at).is_(None), col(Blob.unreferenced_at).is_not(None)))
        .values(unreferenced_at=func.coalesce(Blob.unreferenced_at, literal(now, UtcMs)))
        .execution_options(**_BLINDLY)
        .returning(col(Blob.key))
    )
    return list(session.execute(statement).scalars())


def delete_orphans(session: Session, keys: Collection[str]) -> None:
    """Delete the rows of blobs that were marked and whose contents were deleted, unless something refers to them."""
    session.execute(delete(Blob).where(col(Blob.key).in_(keys), ~_REFERRED).execution_options(**_BLINDLY))


def delete_files(session: Session, limit: int) -> int:
    """Delete files whose content was collected and that no batch names, then their blobs; count them."""
    named = or_(
        exists().where(col(Batch.input_file_id) == col(File.id)),
        exists().where(col(Batch.output_file_id) == col(File.id)),
        exists().where(col(Batch.error_file_id) == col(File.id)),
    )
    query = (
        select(File.id, File.blob_key)
        .join(Blob, col(Blob.key) == col(File.blob_key))
        .where(col(File.hidden_at).is_not(None), col(Blob.collected_at).is_not(None), ~named)
        .limit(limit)
    )
    # Locked: a batch can be made of a hidden file by nobody, and two sweeps take different ones.
    found = session.execute(query.with_for_update(skip_locked=True, of=File)).all()
    if found:
        ids, keys = [row[0] for row in found], [row[1] for row in found]
        session.execute(delete(File).where(col(File.id).in_(ids)).execution_options(**_BLINDLY))
        delete_orphans(session, keys)
    return len(found)


def delete_events(session: Session, before: datetime, limit: int) -> int:
    """Delete events older than `before`, and count them."""
    old = select(Event.seq).where(col(Event.at) < before).order_by(col(Event.at)).limit(limit)
    seqs = list(session.exec(old).all())
    if seqs:
        session.execute(delete(Event).where(col(Event.seq).in_(seqs)))
    return len(seqs)


def forget_keys(session: Session, before: datetime, limit: int) -> int:
    """Forget the idempotency keys of batches made before `before`, and count them."""
    old = (
        select(Batch.id)
        .where(col(Batch.idempotency_key).is_not(None), col(Batch.created_at) < before)
        .limit(limit)
        .with_for_update(key_share=True, skip_locked=True)
    )
    ids = list(session.exec(old))
    if ids:
        forget = update(Batch).where(col(Batch.id).in_(ids)).values(idempotency_key=None)
        session.execute(forget.execution_options(**_BLINDLY))
    return len(ids)


def delete_endpoints(session: Session, before: datetime, limit: int) -> int:
    """Delete endpoints that users deleted before `before` and that no job names, and count them."""
    old = (
        select(WebhookEndpoint.id)
        .where(
            col(WebhookEndpoint.deleted_at) < before,
            ~exists().where(col(Job.endpoint_id) == col(WebhookEndpoint.id)),
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list(session.exec(old))
    if ids:
        session.execute(delete(WebhookEndpoint).where(col(WebhookEndpoint.id).in_(ids)).execution_options(**_BLINDLY))
    return len(ids)


def delete_workers(session: Session, before: datetime, limit: int) -> Sequence[Worker]:
    """Delete workers last seen before `before` that no lease names, and give them as they were."""
    unnamed = ~exists().where(col(Lease.worker_id) == col(Worker.id))
    query = select(Worker).where(col(Worker.last_seen_at) < before, unnamed).limit(limit)
    locked = session.exec(query.with_for_update(skip_locked=True)).all()
    # Asked again under the locks: a claim that held one of them may have made a lease meanwhile.
    ids = session.exec(select(Worker.id).where(col(Worker.id).in_([worker.id for worker in locked]), unnamed)).all()
    if ids:
        session.execute(delete(Worker).where(col(Worker.id).in_(ids)).execution_options(**_BLINDLY))
    return [worker for worker in locked if worker.id in set(ids)]
