"""Forgetting batches that have ended, piece by piece: segments, then jobs and leases, then the batch (decision 60).

Each step is bounded, and one transaction at a time. What a step leaves, the next one finds again.
"""

import logging
from datetime import timedelta

from sqlmodel import Session

from app.blobs import checked
from app.blobs.store import BlobDamaged, BlobMissing, BlobUnavailable
from app.db import ended_batches as ended_sql
from app.db import events, locks
from app.db.tables import Batch
from app.domain.retention import Kept
from app.services import batch_views, blobs, damage
from app.services.context import Yard

ACTOR = "service:retention"
log = logging.getLogger(__name__)


def forget_segments(yard: Yard, limit: int) -> int:
    """Delete segments of batches whose files are there, whole; count them. Their contents go like all orphans.

    A batch with a damaged file keeps its segments for as long as its row: they hold the same answers.
    """
    done = 0
    for kept, lives in (
        (Kept.ROWS, yard.limits.segment_retention_seconds),
        (Kept.DAMAGED, yard.limits.batch_retention_seconds),
    ):
        for batch in _due(yard, kept, lives, limit):
            try:
                lost = kept is Kept.ROWS and _is_lost(yard, batch)
            except BlobUnavailable as error:
                log.warning("contents cannot be looked at, so nothing is deleted that may be needed: %s", error)
                return done
            if lost:
                _keep_all(yard, batch)
                continue
            done += _in_steps(yard, batch, limit - done)
            if done >= limit:
                return done
    return done


def forget_jobs(yard: Yard, limit: int) -> int:
    """Delete jobs and leases of batches whose segments are gone; count the jobs."""
    done = 0
    for batch in _due(yard, Kept.JOBS, yard.limits.job_retention_seconds, limit):

        def work(session: Session, batch_id: str = batch.id, most: int = limit - done) -> int:
            ended_sql.hold(session)
            count = ended_sql.delete_jobs(session, batch_id, most)
            if count < most:
                _move(session, batch_id, Kept.JOBS, Kept.BATCH)
            return count

        done += yard.store.run(work)
        if done >= limit:
            break
    return done


def forget_batches(yard: Yard, limit: int) -> int:
    """Delete batches of which nothing else is kept, with what was told of them; count them. Their files stay."""

    def work(session: Session) -> int:
        ended_sql.hold(session)
        now = yard.store.now(session)
        before = now - timedelta(seconds=yard.limits.batch_retention_seconds)
        gone = ended_sql.delete_batches(session, before, limit)
        for batch in gone:
            events.record(session, now=now, type="batch.forgotten", subject=batch.id, actor=ACTOR, org_id=batch.org_id)
        return len(gone)

    return yard.store.run(work)


def forget_told(yard: Yard, limit: int) -> int:
    """Delete what is known of webhooks that were delivered, given up or dropped long ago; count them."""

    def work(session: Session) -> int:
        ended_sql.hold(session)
        before = yard.store.now(session) - timedelta(seconds=yard.limits.webhook_retention_seconds)
        return ended_sql.delete_told(session, before, limit)

    return yard.store.run(work)


def _due(yard: Yard, kept: Kept, lives_seconds: int, limit: int) -> list[Batch]:
    with yard.store.read() as session:
        before = yard.store.now(session) - timedelta(seconds=lives_seconds)
        return list(ended_sql.due(session, kept, before, limit))


def _in_steps(yard: Yard, batch: Batch, limit: int) -> int:
    """Delete up to `limit` segments of a batch. The first step keeps what is counted from them, for people."""

    def work(session: Session) -> int:
        ended_sql.hold(session)
        found = locks.batch(session, batch.id)
        if found is None or found.kept != batch.kept:
            return 0  # another sweep was quicker
        if found.top_errors is None:
            found.top_errors = [error.model_dump() for error in batch_views.top_errors(session, found)]
        count = ended_sql.delete_segments(session, batch.id, limit, yard.store.now(session))
        if count < limit:
            found.kept = Kept.JOBS
        session.add(found)
        return count

    return yard.store.run(work)


def _is_lost(yard: Yard, batch: Batch) -> bool:
    """Look for a result file that is not what was written; what a user deleted, or has expired, is not looked for.

    Each is read whole before the first of the segments goes, which are the only other copy of its answers.
    """
    look = checked.verify if batch.top_errors is None else checked.check_size
    with yard.store.read() as session:
        files = ended_sql.files(session, batch)
    for file, blob in files:
        if blob.collected_at is not None:
            continue
        what = blob.damage
        try:
            if blob.damaged_at is None:
                look(yard.blobs, blobs.as_recorded(blob))
                continue
        except (BlobDamaged, BlobMissing) as error:
            what = error.what
            damage.note(yard, blob.key, what)
        log.error("%s of %s, content %s, is not what was written: %s", file.filename, batch.id, blob.key, what)
        return True
    return False


def _keep_all(yard: Yard, batch: Batch) -> None:
    if yard.store.run(lambda session: _move(session, batch.id, Kept.ROWS, Kept.DAMAGED)):
        log.error("all that is kept of %s stays, until the batch itself is forgotten", batch.id)


def _move(session: Session, batch_id: str, before: Kept, after: Kept) -> bool:
    """Say what is kept now; False when somebody else has."""
    batch = locks.batch(session, batch_id)
    if batch is None or batch.kept != before:
        return False
    batch.kept = after
    session.add(batch)
    return True
