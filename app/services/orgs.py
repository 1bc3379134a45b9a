"""Orgs: who owns things. The operator's admins make them."""

from datetime import datetime

from sqlmodel import Session

from app.db import events, exclusive
from app.db import orgs as orgs_sql
from app.db.tables import Org
from app.domain.errors import Conflict, Forbidden
from app.schemas.tokens import NewOrg, OrgInfo
from app.services import ids
from app.services.context import Caller, Yard


def create(yard: Yard, caller: Caller, wanted: NewOrg) -> OrgInfo:
    """Make an org. Raises Forbidden for everybody but the operator, Conflict for a name that is taken."""
    _operator_only(caller)

    def work(session: Session) -> OrgInfo:
        exclusive.hold(session, [f"org:{wanted.name}"])
        if orgs_sql.by_name(session, wanted.name) is not None:
            raise Conflict(f"an org named {wanted.name!r} is there already", code="name_taken", param="name")
        return _shown(insert(session, wanted.name, now=yard.store.now(session), actor=caller.actor))

    return yard.store.run(work)


def listed(yard: Yard, caller: Caller) -> list[OrgInfo]:
    """List all orgs, for the operator only."""
    _operator_only(caller)
    with yard.store.read() as session:
        return [_shown(org) for org in orgs_sql.every(session)]


def insert(session: Session, name: str, *, now: datetime, actor: str, operator: bool = False) -> Org:
    """Store an org with its event."""
    org = Org(id=ids.new("org_"), name=name, operator=operator, created_at=now)
    session.add(org)
    session.flush()
    events.record(session, now=now, type="org.created", subject=org.id, actor=actor, org_id=org.id)
    return org


def _operator_only(caller: Caller) -> None:
    if not caller.operator:
        raise Forbidden("orgs are the operator's business: use a key of an admin of its org", code="operator_only")


def _shown(org: Org) -> OrgInfo:
    return OrgInfo(id=org.id, name=org.name, operator=org.operator, created_at=int(org.created_at.timestamp()))
