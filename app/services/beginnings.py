"""What a database needs before its first caller: an org, a key, the declared pools. Safe to run at every start."""

from collections.abc import Mapping

from sqlmodel import Session

from app.db import exclusive, orgs, pools, tokens
from app.schemas.pools import NewPool
from app.services import orgs as orgs_service
from app.services import pools as pools_service
from app.services import tokens as tokens_service
from app.services.context import Yard

OPERATOR_ORG = "default"
FIRST_KEY = "first admin key"
WORKER_KEY = "worker key of the settings"
_ACTOR = "service:start"


def first_key(yard: Yard, secret: str) -> bool:
    """Make the operator's org and its admin key out of `secret`, unless some token exists; tell whether it did."""

    def work(session: Session) -> bool:
        exclusive.hold(session, ["beginnings"])
        if tokens.exist(session):
            return False
        now = yard.store.now(session)
        org = orgs.by_name(session, OPERATOR_ORG) or orgs_service.insert(
            session, OPERATOR_ORG, now=now, actor=_ACTOR, operator=True
        )
        scopes = ["admin", "worker"]
        tokens_service.insert(session, org, secret, name=FIRST_KEY, scopes=scopes, now=now, actor=_ACTOR)
        return True

    return yard.store.run(work)


def worker_key(yard: Yard, secret: str) -> bool:
    """Make a key for workers out of `secret`, unless it was made before; tell whether it did. A revoked one stays so.

    `first_key` was called before, so the operator's org is there.
    """

    def work(session: Session) -> bool:
        exclusive.hold(session, ["beginnings"])
        org = orgs.by_name(session, OPERATOR_ORG)
        if org is None or tokens.is_known(session, tokens_service.digest(secret)):
            return False
        now = yard.store.now(session)
        tokens_service.insert(session, org, secret, name=WORKER_KEY, scopes=["worker"], now=now, actor=_ACTOR)
        return True

    return yard.store.run(work)


def declare_pools(yard: Yard, declared: Mapping[str, NewPool], *, default: str) -> None:
    """Make the pools that the settings name, and the default one."""

    def work(session: Session) -> None:
        exclusive.hold(session, ["beginnings", *(f"pool:{name}" for name in {*declared, default})])
        now = yard.store.now(session)
        pools.unset_default(session, but=default)
        for name, pool in sorted({default: NewPool(name=default), **declared}.items()):
            pools_service.declare(session, yard, pool, default=name == default, now=now, actor=_ACTOR)

    yard.store.run(work)
