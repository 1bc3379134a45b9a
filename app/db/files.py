"""Files in SQL. A file is seen by its own org only, until it is hidden or has expired (PROTOCOL 8)."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import Session, col, select

from app.db.tables import Batch, Blob, File
from app.domain.batches import ENDED

_ENDED = sorted(ENDED)
_NAMED = 100


def find(session: Session, file_id: str, *, org_id: str, now: datetime, lock: bool = False) -> File | None:
    """Find a file that its org sees. `lock` keeps it from being deleted, or used by a new batch, meanwhile."""
    query = select(File).where(col(File.id) == file_id, col(File.org_id) == org_id, _seen(now))
    if lock:
        query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return session.exec(query).first()


def content(session: Session, file_id: str, *, org_id: str | None, now: datetime) -> tuple[File, Blob] | None:
    """Find a file and its blob. `org_id` None: whoever owns it, hidden or not (a worker reads under its lease)."""
    query = select(File, Blob).join(Blob, col(Blob.key) == col(File.blob_key)).where(col(File.id) == file_id)
    if org_id is not None:
        query = query.where(col(File.org_id) == org_id, _seen(now))
    return session.exec(query).first()


def page(
    session: Session,
    org_id: str,
    *,
    now: datetime,
    limit: int,
    after_seq: int | None = None,
    purpose: str | None = None,
    ascending: bool = False,
) -> Sequence[File]:
    """Read the files behind a cursor in the order they were made, or newest first."""
    query = select(File).where(col(File.org_id) == org_id, _seen(now))
    if purpose is not None:
        query = query.where(col(File.purpose) == purpose)
    if after_seq is not None:
        query = query.where(col(File.seq) > after_seq if ascending else col(File.seq) < after_seq)
    order = col(File.seq).asc() if ascending else col(File.seq).desc()
    return session.exec(query.order_by(order).limit(limit)).all()


def seq_of(session: Session, file_id: str, org_id: str) -> int | None:
    """Give a file's place in the order, deleted or not: a loop that deletes as it lists must go on."""
    return session.exec(select(File.seq).where(col(File.id) == file_id, col(File.org_id) == org_id)).first()


def in_use(session: Session, file_id: str) -> bool:
    """Tell whether a batch that has not ended reads the file."""
    query = select(Batch.id).where(col(Batch.input_file_id) == file_id, col(Batch.state).not_in(_ENDED)).limit(1)
    return session.exec(query).first() is not None


def of_blob(session: Session, key: str) -> File | None:
    """Find the file whose content a blob is; None for that of a hand-in."""
    return session.exec(select(File).where(col(File.blob_key) == key)).first()


def batches_in_need(session: Session, file_id: str) -> Sequence[Batch]:
    """Read the batches whose result a file is, or whose input while they have not ended."""
    reads = and_(col(Batch.input_file_id) == file_id, col(Batch.state).not_in(_ENDED))
    query = select(Batch).where(or_(col(Batch.output_file_id) == file_id, col(Batch.error_file_id) == file_id, reads))
    return session.exec(query.order_by(col(Batch.seq)).limit(_NAMED)).all()


def damaged(session: Session, file_ids: Collection[str]) -> Mapping[str, str]:
    """Say what is wrong with those files whose content was found damaged or gone, and is still needed."""
    query = select(File.id, Blob.damage).join(Blob, col(Blob.key) == col(File.blob_key))
    query = query.where(
        col(File.id).in_(file_ids), col(Blob.damaged_at).is_not(None), col(Blob.unreferenced_at).is_(None)
    )
    return {file_id: what or "" for file_id, what in session.exec(query)}


def _seen(now: datetime) -> ColumnElement[bool]:
    return col(File.hidden_at).is_(None) & or_(col(File.expires_at).is_(None), col(File.expires_at) > now)
