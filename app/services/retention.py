"""Forgetting files, contents, events, workers and endpoints whose time is over (PROTOCOL 8, decision 60)."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlmodel import Session

from app.blobs.store import BlobUnavailable
from app.db import events
from app.db import orgs as orgs_sql
from app.db import retention as retention_sql
from app.services.batches import KEY_LIFE
from app.services.context import Yard
from app.services.ended_batches import ACTOR

log = logging.getLogger(__name__)


def expire_files(yard: Yard, limit: int) -> int:
    """Hide files whose time is over; their content goes a day later, or when the last batch that reads it has ended."""

    def work(session: Session) -> int:
        now = yard.store.now(session)
        hidden = retention_sql.hide_expired_files(session, now, limit)
        for file in hidden:
            events.record(session, now=now, type="file.expired", subject=file.id, actor=ACTOR, org_id=file.org_id)
        orgs_sql.discount_files(session, hidden)
        return len(hidden)

    return yard.store.run(work)


def collect_contents(yard: Yard, limit: int) -> int:
    """Delete contents that nothing refers to any more, contents first, then their rows, and count them.

    While the store is away nothing is deleted: a file that is not found may be there still.
    """
    try:
        return _collect_contents(yard, limit)
    except BlobUnavailable as error:
        log.warning("no content is deleted while the store is away: %s", error)
        return 0


def _collect_contents(yard: Yard, limit: int) -> int:
    with yard.store.read() as session:
        before = _before(yard, session, yard.limits.blob_retention_seconds)
        orphans = retention_sql.orphans(session, before, limit)
        hidden = retention_sql.hidden_contents(session, before, limit)
    if orphans:
        # Marked first, so that a writer that comes back after a day is refused and does not refer to what is gone.
        marked = yard.store.run(lambda session: retention_sql.mark_orphans(session, orphans, yard.store.now(session)))
        for key in marked:
            yard.blobs.delete(key)
        yard.store.run(lambda session: retention_sql.delete_orphans(session, marked))
    if hidden:
        for key in hidden:
            yard.blobs.delete(key)
        yard.store.run(lambda session: retention_sql.mark_collected(session, hidden, yard.store.now(session)))
    return len(orphans) + len(hidden)


def collect_leftovers(yard: Yard) -> None:
    """Delete writes that a killed process left half done."""
    try:
        yard.blobs.collect_leftovers(yard.limits.blob_retention_seconds)
    except BlobUnavailable as error:
        log.warning("no leftover is deleted while the store is away: %s", error)


def forget_files(yard: Yard, limit: int) -> int:
    """Delete the rows of files whose content is gone and that no batch names, and count them."""
    return yard.store.run(lambda session: retention_sql.delete_files(session, limit))


def forget_events(yard: Yard, limit: int) -> int:
    """Delete events older than their time, and count them."""
    return _older(yard, yard.limits.event_retention_seconds, limit, retention_sql.delete_events)


def forget_keys(yard: Yard, limit: int) -> int:
    """Forget idempotency keys that mean nothing any more, and count them."""
    return _older(yard, KEY_LIFE.total_seconds(), limit, retention_sql.forget_keys)


def forget_endpoints(yard: Yard, limit: int) -> int:
    """Delete endpoints that users deleted long ago and that no delivery names, and count them."""
    return _older(yard, yard.limits.webhook_retention_seconds, limit, retention_sql.delete_endpoints)


def forget_workers(yard: Yard, limit: int) -> int:
    """Delete workers that nobody has heard of for long and that no lease names, and count them."""

    def work(session: Session) -> int:
        now = yard.store.now(session)
        before = now - timedelta(seconds=yard.limits.worker_retention_seconds)
        gone = retention_sql.delete_workers(session, before, limit)
        for worker in gone:
            seen = {"name": worker.name, "last_seen_at": worker.last_seen_at.isoformat()}
            events.record(
                session,
                now=now,
                type="worker.forgotten",
                subject=worker.id,
                actor=ACTOR,
                org_id=worker.org_id,
                data=seen,
            )
        return len(gone)

    return yard.store.run(work)


def _before(yard: Yard, session: Session, lives_seconds: float) -> datetime:
    return yard.store.now(session) - timedelta(seconds=lives_seconds)


def _older(yard: Yard, lives_seconds: float, limit: int, forget: Callable[[Session, datetime, int], int]) -> int:
    return yard.store.run(lambda session: forget(session, _before(yard, session, lives_seconds), limit))
