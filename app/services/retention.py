"""Forgetting: files whose time is over, contents that nothing refers to, old events (PROTOCOL 8)."""

from datetime import timedelta

from sqlmodel import Session

from app.db import events
from app.db import retention as retention_sql
from app.services.context import Yard


def expire_files(yard: Yard, limit: int) -> int:
    """Hide files whose time is over; their content goes a day later, or when the last batch that reads it has ended."""

    def work(session: Session) -> int:
        now = yard.store.now(session)
        hidden = retention_sql.hide_expired_files(session, now, limit)
        for file in hidden:
            events.record(
                session, now=now, type="file.expired", subject=file.id, actor="service:retention", org_id=file.org_id
            )
        return len(hidden)

    return yard.store.run(work)


def collect_contents(yard: Yard, limit: int) -> int:
    """Delete contents that nothing refers to any more, content first, then its row, and count them."""
    with yard.store.read() as session:
        before = yard.store.now(session) - timedelta(seconds=yard.limits.blob_retention_seconds)
        orphans = list(retention_sql.orphans(session, before, limit))
        hidden = list(retention_sql.hidden_contents(session, before, limit))
    for key in orphans:
        # Marked first, so that a writer that comes back after a day is refused and does not refer to what is gone.
        if _marked_orphan(yard, key):
            yard.blobs.delete(key)
            _forget_orphan(yard, key)
    for key in hidden:
        yard.blobs.delete(key)
        _mark_collected(yard, key)
    yard.blobs.collect_leftovers(yard.limits.blob_retention_seconds)
    return len(orphans) + len(hidden)


def forget_events(yard: Yard, limit: int) -> int:
    """Delete events older than their time, and count them."""

    def work(session: Session) -> int:
        before = yard.store.now(session) - timedelta(seconds=yard.limits.event_retention_seconds)
        return retention_sql.delete_events(session, before, limit)

    return yard.store.run(work)


def _marked_orphan(yard: Yard, key: str) -> bool:
    return yard.store.run(lambda session: retention_sql.mark_orphan(session, key, yard.store.now(session)))


def _forget_orphan(yard: Yard, key: str) -> None:
    yard.store.run(lambda session: retention_sql.delete_orphan(session, key))


def _mark_collected(yard: Yard, key: str) -> None:
    yard.store.run(lambda session: retention_sql.mark_collected(session, key, yard.store.now(session)))
