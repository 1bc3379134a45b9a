"""Events: written in the transaction that made them happen, read by cursors that skip nothing (PROTOCOL 9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, insert, literal, literal_column, not_, or_, text
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app.db.tables import Event

_TXID = text("pg_current_xact_id()::text::bigint")
# Built once, for building one costs more than running it.
_INSERT_POSTGRES = insert(Event).values(txid=_TXID)
_INSERT_SQLITE = insert(Event).values(txid=literal(0))
_HORIZON = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event that is to be written with others."""

    type: str
    subject: str
    actor: str
    org_id: str | None
    data: dict[str, Any]


def record(
    session: Session,
    *,
    now: datetime,
    type: str,  # noqa: A002 - the event's own word, on the wire too
    subject: str,
    actor: str,
    org_id: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Write an event as part of the caller's transaction. `org_id` None: only the operator's admins see it."""
    record_all(session, [Recorded(type, subject, actor, org_id, data or {})], now=now)


def record_all(session: Session, recorded: Sequence[Recorded], *, now: datetime) -> None:
    """Write many events by one statement."""
    if recorded:
        statement = _INSERT_POSTGRES if session.get_bind().dialect.name == "postgresql" else _INSERT_SQLITE
        values = [
            {
                "at": now,
                "type": event.type,
                "subject": event.subject,
                "actor": event.actor,
                "org_id": event.org_id,
                "data": event.data,
            }
            for event in recorded
        ]
        session.connection().execute(statement, values)


def xid(session: Session) -> Any:
    """Give the SQL value for a row's `txid`: which transaction wrote it. 0 on SQLite, whose commits are in order."""
    return _TXID if session.get_bind().dialect.name == "postgresql" else literal(0)


def settled(session: Session, txid: Any) -> ColumnElement[bool]:
    """Give the condition that nothing with a lower key can still be committed by a transaction that runs now."""
    if session.get_bind().dialect.name != "postgresql":
        return literal(value=True)
    condition: ColumnElement[bool] = txid < literal_column(_HORIZON)
    return condition


def after(
    session: Session, seq: int, *, org_id: str, operator: bool, subject: str | None = None, limit: int = 100
) -> Sequence[Event]:
    """Give the events behind the cursor `seq` that the org may see, in order, and none that may yet be overtaken."""
    query = _visible(session, org_id=org_id, operator=operator, subject=subject).where(col(Event.seq) > seq)
    return session.exec(query.order_by(col(Event.seq)).limit(limit)).all()


def before(
    session: Session, seq: int | None, *, org_id: str, operator: bool, subject: str | None = None, limit: int = 100
) -> Sequence[Event]:
    """Give those before the cursor (None: all there are), newest first."""
    query = _visible(session, org_id=org_id, operator=operator, subject=subject)
    if seq is not None:
        query = query.where(col(Event.seq) < seq)
    return session.exec(query.order_by(col(Event.seq).desc()).limit(limit)).all()


def _visible(session: Session, *, org_id: str, operator: bool, subject: str | None) -> SelectOfScalar[Event]:
    query = select(Event).where(settled(session, col(Event.txid)))
    visible = col(Event.org_id) == org_id
    query = query.where(or_(visible, col(Event.org_id).is_(None)) if operator else visible)
    return query if subject is None else query.where(col(Event.subject) == subject)


def last_seq(session: Session) -> int:
    """Give the cursor that stands behind every event so far."""
    return session.exec(select(func.max(Event.seq)).where(settled(session, col(Event.txid)))).one() or 0


def heads(session: Session, subjects: Collection[str]) -> Mapping[str, int]:
    """Give the highest cursor of each subject's events that none may overtake."""
    query = (
        select(Event.subject, func.max(Event.seq))
        .where(col(Event.subject).in_(sorted(subjects)), settled(session, col(Event.txid)))
        .group_by(col(Event.subject))
    )
    return {subject: seq for subject, seq in session.exec(query).all() if seq is not None}


def last_at(session: Session, subject: str, kind: str) -> datetime | None:
    """Return when an event of this kind last happened to a subject, as far as events are kept."""
    query = select(Event.at).where(col(Event.subject) == subject, col(Event.type) == kind)
    return session.exec(query.order_by(col(Event.seq).desc()).limit(1)).first()


def unsettled(session: Session, subject: str) -> bool:
    """Tell whether a subject has events that no cursor may pass yet."""
    query = select(Event.seq).where(col(Event.subject) == subject, not_(settled(session, col(Event.txid))))
    return session.exec(query.limit(1)).first() is not None
