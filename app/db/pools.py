"""Pools in SQL."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, update
from sqlmodel import Session, col, select

from app.db.tables import Pool, Worker


@dataclass(frozen=True, slots=True)
class PoolSet:
    """Pools by their names: those named, or all but those named."""

    names: Collection[str]
    but: bool = False

    @property
    def of_worker(self) -> ColumnElement[bool]:
        """Whether a worker's pool is one of them."""
        return col(Worker.pool).not_in(sorted(self.names)) if self.but else col(Worker.pool).in_(sorted(self.names))


EVERY_POOL = PoolSet((), but=True)


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


def named(session: Session, names: Collection[str]) -> Sequence[Pool]:
    """Read the pools of these names that there are."""
    return session.exec(select(Pool).where(col(Pool.name).in_(sorted(set(names))))).all()


def note_gap(session: Session, names: Collection[str], now: datetime) -> None:
    """Note that a gap ended in which heartbeats of these pools' workers may have gone unheard."""
    if names:
        session.execute(update(Pool).where(col(Pool.name).in_(sorted(names))).values(heard_since=now))


def count(session: Session, org_id: str) -> int:
    """Count an org's own pools."""
    return session.exec(select(func.count()).select_from(Pool).where(col(Pool.org_id) == org_id)).one()
