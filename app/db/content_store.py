"""The id of the store of contents in SQL, and what the database knows of the store."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import inspect, update
from sqlmodel import Session, col, select

from app.db import exclusive
from app.db.tables import Blob, ContentStore


def find(session: Session) -> ContentStore | None:
    """Read the id of the store; None before the first start."""
    return session.exec(select(ContentStore)).first()


def find_or_make(session: Session, store_id: str, now: datetime) -> ContentStore:
    """Read the id of the store, and make it `store_id` where there is none. Of two that do so at once one makes it."""
    exclusive.hold(session, ["content-store"])
    found = find(session)
    if found is None:
        found = ContentStore(id=store_id, created_at=now)
        session.add(found)
    return found


def set_marked(session: Session, at: datetime) -> None:
    """Record that the marker is there."""
    session.execute(update(ContentStore).values(marked_at=at))


def look_again(session: Session) -> None:
    """Have the next start look for the marker, and write it where the contents came without it; any schema will do."""
    if inspect(session.connection()).has_table("content_store"):
        session.execute(update(ContentStore).values(marked_at=None))


def newest_contents(session: Session, limit: int) -> Sequence[str]:
    """Name contents that should be in the store."""
    query = (
        select(Blob.key)
        .where(col(Blob.put_at).is_not(None), col(Blob.collected_at).is_(None), col(Blob.unreferenced_at).is_(None))
        .order_by(col(Blob.put_at).desc())
        .limit(limit)
    )
    return session.exec(query).all()
