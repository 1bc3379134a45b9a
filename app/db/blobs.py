"""Rows of blobs. Announced and committed before the content is written, marked put after it (PROTOCOL 5, 8)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.db.tables import Blob

_NEEDED = (col(Blob.put_at).is_not(None), col(Blob.unreferenced_at).is_(None))


def announce(session: Session, key: str, *, org_id: str, now: datetime) -> None:
    """Say that a content is about to be written under `key`: whatever happens, a sweep then finds it."""
    session.add(Blob(key=key, org_id=org_id, created_at=now))


def mark_put(session: Session, key: str, *, size: int, digest: str, block_sums: str, now: datetime) -> bool:
    """Say that the content is there, whole. False when the sweep has collected the announced blob meanwhile."""
    statement = (
        update(Blob)
        .where(col(Blob.key) == key, col(Blob.put_at).is_(None), col(Blob.unreferenced_at).is_(None))
        .values(bytes=size, digest=digest, block_sums=block_sums, put_at=now)
        .returning(col(Blob.key))
    )
    return session.execute(statement).first() is not None


def mark_unreferenced(session: Session, key: str, now: datetime) -> None:
    """Say that nothing needs the content any more; it goes a day later."""
    statement = update(Blob).where(col(Blob.key) == key, col(Blob.unreferenced_at).is_(None))
    session.execute(statement.values(unreferenced_at=now))


def mark_damaged(session: Session, key: str, what: str, now: datetime) -> bool:
    """Say that a content is not what was written, and where. False when that is known."""
    statement = update(Blob).where(col(Blob.key) == key, col(Blob.damaged_at).is_(None))
    found = session.execute(statement.values(damaged_at=now, damage=what).returning(col(Blob.key)))
    return found.first() is not None


def mark_sound(session: Session, key: str) -> bool:
    """Say that a content that was damaged is what was written again. False when it never was damaged."""
    statement = update(Blob).where(col(Blob.key) == key, col(Blob.damaged_at).is_not(None))
    found = session.execute(statement.values(damaged_at=None, damage=None).returning(col(Blob.key)))
    return found.first() is not None


def needed(session: Session, *, after: str, limit: int) -> Sequence[Blob]:
    """Read contents that something refers to, by key, those behind `after`."""
    query = select(Blob).where(col(Blob.key) > after, *_NEEDED).order_by(col(Blob.key)).limit(limit)
    return session.exec(query).all()


def is_needed(session: Session, key: str) -> bool:
    """Tell whether something still refers to a content."""
    return session.exec(select(Blob.key).where(col(Blob.key) == key, *_NEEDED)).first() is not None
