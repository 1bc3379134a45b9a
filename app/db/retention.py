"""What has lived long enough, in SQL. Contents go before rows, and nothing goes that a running batch needs."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, exists, func, literal, or_, update
from sqlmodel import Session, col, select

from app.db.tables import Batch, Blob, Event, File, Segment
from app.db.types import UtcMs
from app.domain.batches import ENDED

_ENDED = sorted(ENDED)


def hide_expired_files(session: Session, now: datetime, limit: int) -> Sequence[File]:
    """Hide files whose time is over, and give them."""
    query = select(File).where(col(File.expires_at) <= now, col(File.hidden_at).is_(None)).limit(limit)
    found = session.exec(query.with_for_update(key_share=True, skip_locked=True)).all()
    for file in found:
        file.hidden_at = now
        session.add(file)
    return found


def orphans(session: Session, before: datetime, limit: int) -> Sequence[str]:
    """Name blobs older than `before` that nothing refers to: writes that never came to an end, refused hand-ins."""
    query = (
        select(Blob.key)
        .where(
            col(Blob.created_at) < before,
            or_(col(Blob.put_at).is_(None), col(Blob.unreferenced_at) < before),
            ~exists().where(col(File.blob_key) == col(Blob.key)),
            ~exists().where(col(Segment.blob_key) == col(Blob.key)),
        )
        .limit(limit)
    )
    return session.exec(query).all()


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


def mark_collected(session: Session, key: str, now: datetime) -> None:
    """Say that a blob's content was deleted."""
    session.execute(update(Blob).where(col(Blob.key) == key).values(collected_at=now))


def mark_orphan(session: Session, key: str, now: datetime) -> bool:
    """Say that nothing will ever refer to a blob; False when its writer was quicker and something does."""
    statement = (
        update(Blob)
        .where(col(Blob.key) == key, or_(col(Blob.put_at).is_(None), col(Blob.unreferenced_at).is_not(None)))
        .values(unreferenced_at=func.coalesce(Blob.unreferenced_at, literal(now, UtcMs)))
        .execution_options(synchronize_session=False)
        .returning(col(Blob.key))
    )
    return session.execute(statement).first() is not None


def delete_orphan(session: Session, key: str) -> None:
    """Delete the row of a blob that was marked and whose content was deleted, unless something refers to it."""
    session.execute(
        delete(Blob).where(
            col(Blob.key) == key,
            ~exists().where(col(File.blob_key) == col(Blob.key)),
            ~exists().where(col(Segment.blob_key) == col(Blob.key)),
        )
    )


def delete_events(session: Session, before: datetime, limit: int) -> int:
    """Delete events older than `before`, and count them."""
    old = select(Event.seq).where(col(Event.at) < before).order_by(col(Event.at)).limit(limit)
    seqs = list(session.exec(old).all())
    if seqs:
        session.execute(delete(Event).where(col(Event.seq).in_(seqs)))
    return len(seqs)
