"""Telling a webhook endpoint that a batch has ended: control work, tried until it is taken or its tries are spent.

At least once: a control worker that dies between the answer and the commit leaves a lease that expires, and the next
one sends the same bytes under the same `webhook-id`. The batch has ended before and waits for nobody.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import events, locks, orgs
from app.db import leases as leases_sql
from app.db import webhooks as webhooks_sql
from app.db.tables import Batch, Job, Lease, WebhookEndpoint
from app.domain import webhooks
from app.domain.batches import BatchState
from app.domain.jobs import JobState, LeaseEnd
from app.domain.leases import LIVE
from app.domain.rows import RowErrorCode
from app.services import posting
from app.services.context import Yard
from app.services.delivery_views import STATES
from app.services.endings import Ending, end_leases
from app.services.posting import Answer, Call
from app.services.webhooks import SecretUnknown, signed

log = logging.getLogger(__name__)
GONE = 410
"""The endpoint says itself that it wants no more."""


@dataclass(frozen=True, slots=True)
class _Errand:
    """What is to be sent, and to whom; `wanted` False: the endpoint was deleted or disabled meanwhile."""

    endpoint: WebhookEndpoint
    id: str
    body: bytes
    now: datetime
    operator: bool

    @property
    def wanted(self) -> bool:
        return self.endpoint.deleted_at is None and self.endpoint.disabled_at is None


def deliver(yard: Yard, lease_id: int, batch_id: str) -> Batch | None:
    """Try a delivery once under a control lease; None when the lease was lost meanwhile."""
    with yard.store.read() as session:
        errand = _errand(session, yard, lease_id, batch_id)
    answer = _send(yard, errand) if errand.wanted else None
    concluded = yard.store.run(lambda session: _conclude(session, yard, lease_id, answer))
    if concluded is None:
        return None
    batch, state = concluded
    yard.counters.webhooks.labels(STATES[state]).inc()
    return batch


def _errand(session: Session, yard: Yard, lease_id: int, batch_id: str) -> _Errand:
    job = leases_sql.job_of(session, lease_id)
    batch = batches_sql.by_id(session, batch_id)
    endpoint = None if job is None else webhooks_sql.by_id(session, job.endpoint_id)
    type_ = webhooks.event_type(BatchState(batch.state)) if batch is not None else None
    if job is None or batch is None or endpoint is None or type_ is None:
        raise LookupError(f"lease {lease_id} of {batch_id} is no delivery")
    ended_at: datetime = getattr(batch, f"{batch.state}_at")
    body = webhooks.payload(type_, batch.id, created_at=int(ended_at.timestamp()))
    number = webhooks_sql.number(session, endpoint.id, batch.id)
    org = orgs.by_id(session, endpoint.org_id)
    operator = org is not None and org.operator
    return _Errand(endpoint, webhooks.delivery_id(batch.id, number), body, yard.store.now(session), operator)


def _send(yard: Yard, errand: _Errand) -> Answer:
    try:
        headers = signed(yard, errand.endpoint, errand.id, errand.body, errand.now)
    except SecretUnknown as error:
        return Answer(None, str(error))
    rules = yard.webhooks
    call = Call(errand.endpoint.org_id, errand.endpoint.url, errand.body, headers)
    answer = asyncio.run(posting.post(call, allowed=rules.networks, timeout_seconds=rules.timeout_seconds))
    if answer.error is not None:
        log.info("%s did not take %s: %s", errand.endpoint.id, errand.id, answer.detail or answer.error)
    return answer.told_to(operator=errand.operator)


def _conclude(session: Session, yard: Yard, lease_id: int, answer: Answer | None) -> tuple[Batch | None, str] | None:
    lease = locks.leases(session, [lease_id]).get(lease_id)
    if lease is None or lease.state not in LIVE:
        return None
    now = yard.store.now(session)
    actor = f"worker:{lease.worker_id}"
    batch = end_leases(session, [_ending(lease, answer)], now=now, limits=yard.limits, max_losses=None, actor=actor)
    job = session.get_one(Job, lease.job_id)
    endpoint = webhooks_sql.lock(session, job.endpoint_id or "")
    if endpoint is not None and answer is not None:
        _note(session, endpoint, job, answer, now=now, actor=actor)
    return batch, job.state


def _ending(lease: Lease, answer: Answer | None) -> Ending:
    if answer is None:
        return Ending(lease, LeaseEnd.RELEASED, dropped=True)
    if answer.error is None:
        return Ending(lease, LeaseEnd.DONE)
    error = (RowErrorCode.INTERNAL_ERROR, answer.error)
    return Ending(lease, LeaseEnd.FAILED, error, dropped=answer.status == GONE)


def _note(session: Session, endpoint: WebhookEndpoint, job: Job, answer: Answer, *, now: datetime, actor: str) -> None:
    """Keep with the endpoint how it goes, and disable one that is gone, or took nothing for as long as this lasted."""
    session.add(endpoint)
    if answer.error is None:
        endpoint.succeeded_at = now
        return
    endpoint.failed_at, endpoint.last_error = now, answer.error
    given_up = job.state == JobState.FAILED
    told: dict[str, dict[str, Any]] = {}
    if given_up:
        told["webhook.given_up"] = {"batch": job.batch_id, "tries": job.attempts, "error": answer.error}
    silent = endpoint.succeeded_at is None or endpoint.succeeded_at < job.created_at
    reason = None
    if answer.status == GONE:
        reason = f"it answered HTTP {GONE}: it wants no more"
    elif given_up and silent:
        reason = f"nothing was taken in {job.attempts} tries since {job.created_at:%Y-%m-%d %H:%M} UTC: {answer.error}"
    if reason is not None and endpoint.disabled_at is None:
        endpoint.disabled_at, endpoint.disabled_reason = now, reason
        told["webhook.disabled"] = {"reason": reason}
    for type_, data in told.items():
        events.record(session, now=now, type=type_, subject=endpoint.id, actor=actor, org_id=endpoint.org_id, data=data)
