"""Tokens: made once, shown once, known by their hash; a revoked one fails at the next call (DESIGN 11)."""

import re
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime
from hashlib import sha256

from sqlmodel import Session

from app.db import events, orgs
from app.db import tokens as tokens_sql
from app.db.tables import ApiToken, Org
from app.db.types import unreadable
from app.domain.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from app.schemas.listing import Listing, page
from app.schemas.tokens import NewToken, Token, TokenWithSecret
from app.schemas.workers import WORKER_NAME
from app.services import cursors, ids
from app.services.context import Caller, Yard
from app.services.whole_rows import refuse

PREFIX = "gk-"
MAX_TOKENS_LISTED = 1000
SHOWN = 10
"""So many characters of a token are kept for people to tell tokens apart; 256 random bits stay behind them."""


def authenticate(yard: Yard, secret: str | None) -> Caller:
    """Tell who holds `secret`. Raises Unauthenticated."""
    if not secret:
        raise Unauthenticated(
            "no API key: send `Authorization: Bearer gk-…` (set OPENAI_API_KEY or GPUYARD_API_KEY)",
            code="missing_api_key",
        )
    with yard.store.read() as session:
        found = tokens_sql.valid(session, digest(secret))
    if found is None:
        raise Unauthenticated(
            "this API key is unknown or was revoked. An admin makes one with: gpuyard token create NAME",
            code="invalid_api_key",
        )
    if unreadable(found.scopes):
        refuse(["api_token.scopes"], f"key {found.name!r}")
    return Caller(
        org_id=found.org_id,
        token_id=found.token_id,
        name=found.name,
        scopes=frozenset(found.scopes),
        operator=found.operator,
        single_worker=found.single_worker,
    )


def create(yard: Yard, caller: Caller, wanted: NewToken) -> TokenWithSecret:
    """Make a token and give its secret, once (TK-01)."""
    if wanted.single_worker and not re.fullmatch(WORKER_NAME, wanted.name):
        raise BadRequest(
            f"a single-worker token names its worker, and {wanted.name!r} is no worker's name: letters, digits, '.', "
            "'_' and '-', at most 128",
            code="invalid_value",
            param="name",
        )

    def work(session: Session) -> TokenWithSecret:
        org = _org_for(session, caller, wanted.org)
        now = yard.store.now(session)
        secret = new_secret()
        token = insert(
            session,
            org,
            secret,
            name=wanted.name,
            scopes=wanted.scopes,
            single_worker=wanted.single_worker,
            now=now,
            actor=caller.actor,
        )
        return TokenWithSecret(**shown(token).model_dump(), secret=secret)

    return yard.store.run(work)


def listed(yard: Yard, caller: Caller, *, after: str | None = None, limit: int = MAX_TOKENS_LISTED) -> Listing[Token]:
    """List the caller's org's tokens, newest first, revoked ones too. Raises BadRequest for a wrong `after`."""
    with yard.store.read() as session:
        behind = cursors.behind(after, lambda id_: tokens_sql.find(session, id_, org_id=caller.org_id), "No such token")
        found = tokens_sql.page(session, caller.org_id, behind=behind, limit=limit + 1)
        data = [shown(token) for token in found[:limit]]
    return page(data, has_more=len(found) > limit)


def revoke(yard: Yard, caller: Caller, token_id: str) -> Token:
    """Revoke a token of the caller's org; it fails from the next call on. Raises NotFound."""

    def work(session: Session) -> Token:
        now = yard.store.now(session)
        token = tokens_sql.revoke(session, token_id, org_id=caller.org_id, now=now)
        if token is None:
            raise NotFound(f"no token {token_id!r}", code="token_not_found")
        if token.revoked_at == now:
            events.record(
                session, now=now, type="token.revoked", subject=token.id, actor=caller.actor, org_id=token.org_id
            )
        return shown(token)

    return yard.store.run(work)


def note_used(yard: Yard, ids: Collection[str]) -> None:
    """Store that tokens were used lately; called off the request path, about once a minute."""
    yard.store.run(lambda session: tokens_sql.note_used(session, ids, yard.store.now(session)))


def insert(
    session: Session,
    org: Org,
    secret: str,
    *,
    name: str,
    scopes: Sequence[str],
    now: datetime,
    actor: str,
    single_worker: bool = False,
) -> ApiToken:
    """Store a token's hash with its event."""
    token = ApiToken(
        id=ids.new("tok_"),
        org_id=org.id,
        name=name,
        prefix=secret[:SHOWN],
        sha256=digest(secret),
        scopes=sorted(set(scopes)),
        single_worker=single_worker,
        created_at=now,
    )
    session.add(token)
    session.flush()
    data = {"name": name, "scopes": token.scopes}
    events.record(session, now=now, type="token.created", subject=token.id, actor=actor, org_id=org.id, data=data)
    return token


def new_secret() -> str:
    """Make a key: `gk-` and 32 random bytes."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Give what is stored of a secret. Random 256 bits need no slow hash."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def shown(token: ApiToken) -> Token:
    """Put a token on the wire."""
    return Token(
        id=token.id,
        org=token.org_id,
        name=token.name,
        prefix=token.prefix,
        scopes=token.scopes,
        single_worker=token.single_worker,
        created_at=int(token.created_at.timestamp()),
        last_used_at=int(token.last_used_at.timestamp()) if token.last_used_at else None,
        revoked_at=int(token.revoked_at.timestamp()) if token.revoked_at else None,
    )


def _org_for(session: Session, caller: Caller, wanted: str | None) -> Org:
    own = session.get_one(Org, caller.org_id)
    if wanted is None or wanted in {own.id, own.name}:
        return own
    if not caller.operator:
        raise Forbidden("only the operator's admins make tokens for another org", code="operator_only", param="org")
    org = orgs.by_id(session, wanted) or orgs.by_name(session, wanted)
    if org is None:
        raise BadRequest(f"no org {wanted!r}; make it with: gpuyard org create NAME", code="org_not_found", param="org")
    return org
