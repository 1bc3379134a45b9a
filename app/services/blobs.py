"""Writing contents: the row first, then the bytes outside any transaction, then `put_at` (PROTOCOL 5, 8)."""

from collections.abc import Iterable
from datetime import datetime

from sqlmodel import Session

from app.blobs.checked import Recorded
from app.blobs.store import Stored, new_key
from app.db import blobs as blobs_sql
from app.db.tables import Blob
from app.services.context import Yard


def begin(yard: Yard, org_id: str) -> str:
    """Commit the row of a blob that is about to be written, so that a crash leaves nothing unknown; give its key."""
    key = new_key()
    yard.store.run(lambda session: blobs_sql.announce(session, key, org_id=org_id, now=yard.store.now(session)))
    return key


def write(yard: Yard, org_id: str, chunks: Iterable[bytes]) -> tuple[str, Stored]:
    """Write a whole blob; gives its key and what was stored. The caller's transaction says `mark_put`."""
    key = begin(yard, org_id)
    return key, yard.blobs.put(key, chunks)


def mark_put(session: Session, key: str, stored: Stored, now: datetime) -> bool:
    """Say that the content is there, whole. False when the sweep has collected the announced blob meanwhile."""
    return blobs_sql.mark_put(
        session, key, size=stored.bytes, digest=stored.sha256, block_sums=stored.block_sums, now=now
    )


def recorded(session: Session, key: str) -> Recorded:
    """Read what was written under `key`, for a checked read (app.blobs.checked)."""
    return as_recorded(session.get_one(Blob, key))


def as_recorded(blob: Blob) -> Recorded:
    """Return what was written as a blob."""
    return Recorded(blob.key, blob.bytes, blob.block_sums)
