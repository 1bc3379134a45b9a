"""Webhook endpoints, and the control jobs that tell them of a batch's end, in SQL."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, case, exists, func, or_
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from app.db.tables import Batch, Job, WebhookEndpoint
from app.db.types import UtcMs
from app.domain.jobs import ControlVerb, JobKind, JobState

# Asked with every bell for control work, and built once: building one costs as much as running it.
_BUSY = aliased(Job)
_DUE = (
    col(Job.kind) == JobKind.CONTROL,
    col(Job.state) == JobState.QUEUED,
    col(Job.verb) == ControlVerb.DELIVER,
    or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= bindparam("now", type_=UtcMs)),
)
_DELIVERY_DUE = select(Job.id).where(*_DUE).limit(1)
_LEASED = (
    # These name an index of few rows; the deliveries that an endpoint ever had are many.
    col(_BUSY.kind) == JobKind.CONTROL,
    col(_BUSY.state) == JobState.LEASED,
    col(_BUSY.verb) == ControlVerb.DELIVER,
)
_IS_BUSY = select(_BUSY.id).where(*_LEASED, col(_BUSY.endpoint_id) == bindparam("endpoint_id")).limit(1)
_TAKE_DELIVERY = (
    select(Job)
    .join(WebhookEndpoint, col(WebhookEndpoint.id) == col(Job.endpoint_id))
    .where(
        *_DUE,
        ~exists().where(*_LEASED, col(_BUSY.endpoint_id) == col(Job.endpoint_id)),
        col(WebhookEndpoint.org_id).not_in(bindparam("but_orgs", expanding=True)),
    )
    .order_by(
        case(
            (
                and_(
                    col(WebhookEndpoint.failed_at).is_not(None),
                    or_(
                        col(WebhookEndpoint.succeeded_at).is_(None),
                        col(WebhookEndpoint.succeeded_at) < col(WebhookEndpoint.failed_at),
                    ),
                ),
                1,
            ),
            else_=0,
        ),
        col(Job.id),
    )
    .limit(1)
    .with_for_update(key_share=True, skip_locked=True, of=Job)
)


def find(session: Session, endpoint_id: str, *, org_id: str) -> WebhookEndpoint | None:
    """Find an endpoint of an org that was not deleted."""
    query = select(WebhookEndpoint).where(
        col(WebhookEndpoint.id) == endpoint_id,
        col(WebhookEndpoint.org_id) == org_id,
        col(WebhookEndpoint.deleted_at).is_(None),
    )
    return session.exec(query).first()


def by_id(session: Session, endpoint_id: str | None) -> WebhookEndpoint | None:
    """Read an endpoint, deleted or not."""
    return session.exec(select(WebhookEndpoint).where(col(WebhookEndpoint.id) == endpoint_id)).first()


def lock(session: Session, endpoint_id: str) -> WebhookEndpoint | None:
    """Lock an endpoint, deleted or not. It comes last of all locks (PROTOCOL 1)."""
    query = select(WebhookEndpoint).where(col(WebhookEndpoint.id) == endpoint_id)
    return session.exec(query.with_for_update(key_share=True).execution_options(populate_existing=True)).first()


def page(session: Session, org_id: str, *, after_seq: int | None, limit: int) -> Sequence[WebhookEndpoint]:
    """Read an org's endpoints behind a cursor, newest first."""
    query = select(WebhookEndpoint).where(
        col(WebhookEndpoint.org_id) == org_id, col(WebhookEndpoint.deleted_at).is_(None)
    )
    if after_seq is not None:
        query = query.where(col(WebhookEndpoint.seq) < after_seq)
    return session.exec(query.order_by(col(WebhookEndpoint.seq).desc()).limit(limit)).all()


def seq_of(session: Session, endpoint_id: str, org_id: str) -> int | None:
    """Give an endpoint's place in the order, deleted or not: a loop that deletes as it lists must go on."""
    query = select(WebhookEndpoint.seq).where(
        col(WebhookEndpoint.id) == endpoint_id, col(WebhookEndpoint.org_id) == org_id
    )
    return session.exec(query).first()


def count(session: Session, org_id: str) -> int:
    """Count an org's endpoints."""
    query = (
        select(func.count())
        .select_from(WebhookEndpoint)
        .where(col(WebhookEndpoint.org_id) == org_id, col(WebhookEndpoint.deleted_at).is_(None))
    )
    return session.exec(query).one()


def listening(session: Session, org_id: str, event_type: str) -> Sequence[str]:
    """Name the endpoints of an org that are to be told of such an event."""
    query = (
        select(WebhookEndpoint.id, WebhookEndpoint.event_types)
        .where(
            col(WebhookEndpoint.org_id) == org_id,
            col(WebhookEndpoint.deleted_at).is_(None),
            col(WebhookEndpoint.disabled_at).is_(None),
        )
        .order_by(col(WebhookEndpoint.seq))
    )
    return [endpoint_id for endpoint_id, wanted in session.exec(query).all() if event_type in wanted]


def delivery_is_due(session: Session, now: datetime) -> bool:
    """Tell whether a delivery is due, be its endpoint busy or not; reads only."""
    return session.execute(_DELIVERY_DUE, {"now": now}).first() is not None


def take_delivery(session: Session, now: datetime, *, but_orgs: Collection[str] = ()) -> Job | None:
    """Lock a delivery that is due, of no org of `but_orgs`: those to endpoints that answer before those that do not.

    Its endpoint had no other one leased when this began; `lock_if_idle` makes sure.
    """
    return session.exec(_TAKE_DELIVERY, params={"now": now, "but_orgs": sorted(but_orgs)}).first()


def lock_if_idle(session: Session, endpoint_id: str) -> bool:
    """Lock an endpoint, and return whether no delivery to it is leased.

    Two transactions that take two deliveries of one endpoint at once do not see each other's lease; here the second
    one waits for the first, and then sees it.
    """
    lock(session, endpoint_id)
    return session.execute(_IS_BUSY, {"endpoint_id": endpoint_id}).first() is None


def deliveries(
    session: Session, endpoint_id: str, *, before_id: int | None, limit: int
) -> Sequence[tuple[Job, Batch, int]]:
    """Read an endpoint's deliveries with their batches and numbers, newest first; of one sent again, the last round."""
    later = aliased(Job)
    sent_again = exists().where(_tells(later, col(Job.endpoint_id), col(Job.batch_id)), col(later.id) > col(Job.id))
    query = (
        select(Job, Batch, _number(col(Job.endpoint_id), col(Job.batch_id)))
        .join(Batch, col(Batch.id) == col(Job.batch_id))
        .where(col(Job.endpoint_id) == endpoint_id, ~sent_again)
        .order_by(col(Job.id).desc())
        .limit(limit)
    )
    if before_id is not None:
        query = query.where(col(Job.id) < before_id)
    return session.exec(query).all()


def delivery(session: Session, endpoint_id: str, batch_id: str) -> Job | None:
    """Find the delivery that tells an endpoint of a batch: its last round."""
    query = select(Job).where(_tells(Job, endpoint_id, batch_id)).order_by(col(Job.id).desc())
    return session.exec(query.limit(1)).first()


def number(session: Session, endpoint_id: str, batch_id: str) -> int:
    """Give the number of a delivery, which all of its rounds have: that of the first."""
    found: int = session.exec(select(_number(endpoint_id, batch_id))).one()
    return found


def next_number(session: Session, batch_id: str) -> int:
    """Give a number that none of a batch's deliveries has. Its row is locked by the caller."""
    query = select(func.max(col(Job.number))).where(_of_batch(Job, batch_id))
    last = session.exec(query).one()
    return 0 if last is None else last + 1


def _number(endpoint_id: Any, batch_id: Any) -> Any:
    numbered = aliased(Job)
    return select(func.min(col(numbered.number))).where(_tells(numbered, endpoint_id, batch_id)).scalar_subquery()


def _tells(job: type[Job], endpoint_id: Any, batch_id: Any) -> ColumnElement[bool]:
    return and_(_of_batch(job, batch_id), col(job.endpoint_id) == endpoint_id)


def _of_batch(job: type[Job], batch_id: Any) -> ColumnElement[bool]:
    """Name the columns of an index: the deliveries of a batch are few, those of an endpoint many."""
    return and_(col(job.batch_id) == batch_id, col(job.kind) == JobKind.CONTROL, col(job.verb) == ControlVerb.DELIVER)
