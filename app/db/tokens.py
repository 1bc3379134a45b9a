"""API tokens in SQL. Only a token's SHA-256 is known here."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.db.tables import ApiToken, Org


def valid(session: Session, sha256: str) -> tuple[ApiToken, Org] | None:
    """Find the unrevoked token with this hash, and its org."""
    query = (
        select(ApiToken, Org)
        .join(Org, col(Org.id) == col(ApiToken.org_id))
        .where(col(ApiToken.sha256) == sha256, col(ApiToken.revoked_at).is_(None))
    )
    return session.exec(query).first()


def exist(session: Session) -> bool:
    """Tell whether any token was ever created."""
    return session.exec(select(ApiToken.id).limit(1)).first() is not None


def of_org(session: Session, org_id: str) -> Sequence[ApiToken]:
    """List an org's tokens, revoked ones too, newest first."""
    query = select(ApiToken).where(col(ApiToken.org_id) == org_id)
    return session.exec(query.order_by(col(ApiToken.created_at).desc(), col(ApiToken.id))).all()


def revoke(session: Session, token_id: str, *, org_id: str, now: datetime) -> ApiToken | None:
    """Revoke an org's token, once; a second time keeps the first time. None when the org has no such token."""
    token = session.exec(select(ApiToken).where(ApiToken.id == token_id, ApiToken.org_id == org_id)).first()
    if token is not None and token.revoked_at is None:
        token.revoked_at = now
        session.add(token)
    return token


def note_used(session: Session, ids: Collection[str], now: datetime) -> None:
    """Store that tokens were used."""
    session.execute(update(ApiToken).where(col(ApiToken.id).in_(sorted(ids))).values(last_used_at=now))
