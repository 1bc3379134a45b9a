"""API tokens in SQL. Only a token's SHA-256 is known here."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, bindparam, or_, update
from sqlalchemy import select as select_columns
from sqlmodel import Session, col, select

from app.db.tables import ApiToken, Org


@dataclass(frozen=True, slots=True)
class Holder:
    """An unrevoked token with what its org lends it."""

    token_id: str
    name: str
    scopes: Sequence[str]
    single_worker: bool
    org_id: str
    operator: bool


# Every call of every caller asks this, so it is built once and no object of the ORM is made for its answer.
_VALID = (
    select_columns(
        col(ApiToken.id),
        col(ApiToken.name),
        col(ApiToken.scopes),
        col(ApiToken.single_worker),
        col(Org.id),
        col(Org.operator),
    )
    .join(Org, col(Org.id) == col(ApiToken.org_id))
    .where(col(ApiToken.sha256) == bindparam("sha256"), col(ApiToken.revoked_at).is_(None))
)


def valid(session: Session, sha256: str) -> Holder | None:
    """Find the unrevoked token with this hash, and its org."""
    row = session.connection().execute(_VALID, {"sha256": sha256}).first()
    return Holder(*row) if row is not None else None


def revoked(session: Session, ids: Collection[str]) -> Collection[str]:
    """Find those of these tokens that were revoked."""
    return session.exec(
        select(ApiToken.id).where(col(ApiToken.id).in_(sorted(ids)), col(ApiToken.revoked_at).is_not(None))
    ).all()


def exist(session: Session) -> bool:
    """Tell whether any token was ever created."""
    return session.exec(select(ApiToken.id).limit(1)).first() is not None


def is_known(session: Session, sha256: str) -> bool:
    """Tell whether a token with this hash was ever created, revoked or not."""
    return session.exec(select(ApiToken.id).where(ApiToken.sha256 == sha256)).first() is not None


def page(session: Session, org_id: str, *, behind: ApiToken | None, limit: int) -> Sequence[ApiToken]:
    """Read an org's tokens behind one, newest first, revoked ones too."""
    query = select(ApiToken).where(col(ApiToken.org_id) == org_id)
    made, id_ = col(ApiToken.created_at), col(ApiToken.id)
    if behind is not None:
        same = and_(made == behind.created_at, id_ < behind.id)
        query = query.where(or_(made < behind.created_at, same))
    return session.exec(query.order_by(made.desc(), id_.desc()).limit(limit)).all()


def find(session: Session, token_id: str, *, org_id: str) -> ApiToken | None:
    """Find an org's token, revoked or not."""
    return session.exec(select(ApiToken).where(ApiToken.id == token_id, ApiToken.org_id == org_id)).first()


def revoke(session: Session, token_id: str, *, org_id: str, now: datetime) -> ApiToken | None:
    """Revoke an org's token, once; a second time keeps the first time. None when the org has no such token."""
    token = find(session, token_id, org_id=org_id)
    if token is not None and token.revoked_at is None:
        token.revoked_at = now
        session.add(token)
    return token


def note_used(session: Session, ids: Collection[str], now: datetime) -> None:
    """Store that tokens were used."""
    session.execute(update(ApiToken).where(col(ApiToken.id).in_(sorted(ids))).values(last_used_at=now))
