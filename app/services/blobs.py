"""Writing contents: the row first, then the bytes outside any transaction, then `put_at` (PROTOCOL 5, 8)."""

from collections.abc import Iterable
from datetime import datetime

from sqlmodel import Session

from app.blobs.store import new_key
from app.db.tables import Blob
from app.services.context import Yard


def begin(yard: Yard, org_id: str) -> str:
    """Commit the row of a blob that is about to be written, so that a crash leaves nothing unknown; give its key."""
    key = new_key()

    def work(session: Session) -> None:
        session.add(Blob(key=key, org_id=org_id, created_at=yard.store.now(session)))

    yard.store.run(work)
    return key


def write(yard: Yard, org_id: str, chunks: Iterable[bytes]) -> str:
    """Write a whole blob and give its key. The caller's transaction sets `put_at` by `finish`."""
    key = begin(yard, org_id)
    yard.blobs.put(key, chunks)
    return key


def finish(session: Session, yard: Yard, key: str, *, size: int, digest: str | None) -> None:
    """Say, in the transaction that refers to the blob, that its content is there."""
    blob = session.get(Blob, key)
    if blob is None:
        raise LookupError(f"blob {key} has no row: it was collected while it was written")
    blob.bytes, blob.digest = size, digest
    blob.put_at = yard.store.now(session)
    session.add(blob)


def disown(session: Session, key: str, now: datetime) -> None:
    """Say that nothing refers to a blob, so that retention may take it."""
    blob = session.get(Blob, key)
    if blob is not None:
        blob.unreferenced_at = now
        session.add(blob)
