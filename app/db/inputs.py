"""Where a batch's input lies. Hidden files count: a batch reads its input until its end (PROTOCOL 8)."""

from sqlmodel import Session, col, select

from app.db.tables import Batch, File


def input_blob(session: Session, batch_id: str) -> str:
    """Give the blob of a batch's input file."""
    query = select(File.blob_key).join(Batch, col(Batch.input_file_id) == col(File.id)).where(col(Batch.id) == batch_id)
    return session.exec(query).one()
