"""Where a batch's input lies. Hidden files count: a batch reads its input until its end (PROTOCOL 8)."""

from sqlalchemy import bindparam
from sqlmodel import Session, col, select

from app.db.tables import Batch, File

_INPUT_BLOB = (
    select(File.blob_key)
    .join(Batch, col(Batch.input_file_id) == col(File.id))
    .where(col(Batch.id) == bindparam("batch_id"))
)


def input_blob(session: Session, batch_id: str) -> str:
    """Give the blob of a batch's input file."""
    return session.exec(_INPUT_BLOB, params={"batch_id": batch_id}).one()
