"""Orgs in SQL."""

from collections.abc import Sequence

from sqlalchemy import literal
from sqlmodel import Session, col, select

from app.db.tables import Org
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
