"""Pools in SQL."""

from collections.abc import Sequence

from sqlalchemy import func, or_, update
from sqlmodel import Session, col, select

from app.db.tables import Pool


def visible(session: Session, org_id: str) -> Sequence[Pool]:
    """List the pools an org may use: the shared ones and its own, by name."""
    query = select(Pool).where(or_(col(Pool.org_id).is_(None), col(Pool.org_id) == org_id))
    return session.exec(query.order_by(col(Pool.name))).all()


def usable(session: Session, name: str, org_id: str) -> Pool | None:
    """Find a pool that an org may use."""
    pool = session.get(Pool, name)
    return pool if pool is not None and pool.org_id in {None, org_id} else None


def unset_default(session: Session, *, but: str) -> None:
    """Leave one default pool."""
    session.execute(update(Pool).where(col(Pool.name) != but, col(Pool.is_default).is_(True)).values(is_default=False))


def with_timing(session: Session) -> list[Pool]:
    """Read the pools that have rungs of their own."""
    return [pool for pool in session.exec(select(Pool)).all() if pool.timing]


def count(session: Session, org_id: str) -> int:
    """Count an org's own pools."""
    return session.exec(select(func.count()).select_from(Pool).where(col(Pool.org_id) == org_id)).one()
