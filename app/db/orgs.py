"""Orgs in SQL."""

from collections.abc import Sequence

from sqlalchemy import literal, update
from sqlmodel import Session, col, select

from app.db.tables import File, Org
from app.db.types import AnyText


def by_name(session: Session, name: str) -> Org | None:
    """Find an org by its name."""
    return session.exec(select(Org).where(col(Org.name) == name)).first()


def every(session: Session) -> Sequence[Org]:
    """List all orgs by name."""
    return session.exec(select(Org).order_by(col(Org.name))).all()


def by_id(session: Session, org_id: str) -> Org | None:
    """Find an org by its id; any text may be asked for."""
    return session.exec(select(Org).where(col(Org.id) == literal(org_id, AnyText))).first()


def lock(session: Session, org_id: str) -> Org:
    """Lock an org's row until the transaction ends. It comes after a batch's lock (PROTOCOL 1)."""
    query = select(Org).where(col(Org.id) == org_id).with_for_update(key_share=True)
    return session.exec(query.execution_options(populate_existing=True)).one()


def count_file(session: Session, org_id: str, size: int) -> None:
    """Count one more file of an org; its row is locked from here on."""
    _add(session, org_id, 1, size)


def discount_files(session: Session, hidden: Sequence[File]) -> None:
    """Count files no more that this transaction hides; their orgs' rows are locked from here on."""
    for org_id in sorted({file.org_id for file in hidden}):
        sizes = [file.bytes for file in hidden if file.org_id == org_id]
        _add(session, org_id, -len(sizes), -sum(sizes))


def _add(session: Session, org_id: str, files: int, size: int) -> None:
    statement = update(Org).where(col(Org.id) == org_id)
    added = statement.values(files=col(Org.files) + files, file_bytes=col(Org.file_bytes) + size)
    session.execute(added.execution_options(synchronize_session=False))
