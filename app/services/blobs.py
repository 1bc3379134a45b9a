"""Writing contents: the row first, then the bytes outside any transaction, then `put_at` (PROTOCOL 5, 8)."""

from collections.abc import Iterable

from app.blobs.store import Stored, new_key
from app.db import blobs as blobs_sql
from app.services.context import Yard


def begin(yard: Yard, org_id: str) -> str:
    """Commit the row of a blob that is about to be written, so that a crash leaves nothing unknown; give its key."""
    key = new_key()
    yard.store.run(lambda session: blobs_sql.announce(session, key, org_id=org_id, now=yard.store.now(session)))
    return key


def write(yard: Yard, org_id: str, chunks: Iterable[bytes]) -> tuple[str, Stored]:
    """Write a whole blob; gives its key and what was stored. The caller's transaction says `blobs_sql.mark_put`."""
    key = begin(yard, org_id)
    return key, yard.blobs.put(key, chunks)
