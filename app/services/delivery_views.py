"""What endpoints were told and are to be told: listed, and sent again when somebody asks (OPENAI_CONTRACT 1.11).

To send again is another round of tries under the same `webhook-id`, with the same bytes. A job that has ended stays so:
each round is a job of its own, and of each delivery the last round is shown.
"""

from collections.abc import Mapping
from datetime import datetime

from sqlmodel import Session

from app.db import locks
from app.db import webhooks as webhooks_sql
from app.db.tables import Batch, Job, WebhookEndpoint
from app.domain import jobs, webhooks
from app.domain.batches import BatchState
from app.domain.errors import BadRequest, Conflict
from app.domain.jobs import ControlVerb, JobKind, JobState
from app.schemas.listing import Listing, page
from app.schemas.webhooks import DeliveryState, Redelivery, WebhookDelivery
from app.services import cursors
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch
from app.services.webhooks import note, own, seconds

STATES: Mapping[str, DeliveryState] = {
    JobState.QUEUED: "waiting",
    JobState.LEASED: "sending",
    JobState.DONE: "delivered",
    JobState.FAILED: "given_up",
    JobState.CANCELLED: "dropped",
}


def listed(
    yard: Yard, caller: Caller, endpoint_id: str, *, after: str | None = None, limit: int = 20
) -> Listing[WebhookDelivery]:
    """List what an endpoint was or is to be told, newest first. Raises NotFound, and BadRequest for a wrong `after`."""
    with yard.store.read() as session:
        endpoint = own(session, caller, endpoint_id)
        newer = cursors.behind(
            after, lambda id_: webhooks_sql.delivery(session, endpoint.id, _batch_id(id_)), "No such delivery"
        )
        before_id = newer.id if newer is not None else None
        found = webhooks_sql.deliveries(session, endpoint.id, before_id=before_id, limit=limit + 1)
    return page([_shown(*each) for each in found[:limit]], has_more=len(found) > limit)


def send_again(yard: Yard, caller: Caller, endpoint_id: str, wanted: Redelivery) -> WebhookDelivery:
    """Have an endpoint told of a batch's end now: what waits for its next try waits no more, what has ended goes again.

    What it missed while disabled goes, too. Raises NotFound, Conflict, and BadRequest for what it does not ask for.
    """

    def work(session: Session) -> WebhookDelivery:
        endpoint = own(session, caller, endpoint_id)
        batch = own_batch(session, caller, wanted.batch_id)
        type_ = webhooks.event_type(BatchState(batch.state))
        if type_ is None:
            raise Conflict(f"{batch.id} has not ended; its end is told by itself", code="batch_not_ended")
        if endpoint.disabled_at is not None:
            raise Conflict(f"this endpoint is disabled: {endpoint.disabled_reason}", code="webhook_endpoint_disabled")
        now = yard.store.now(session)
        job = _hurried(session, endpoint, batch)
        if job is None or job.state in jobs.ENDED:
            if job is None and type_ not in endpoint.event_types:
                raise BadRequest(f"this endpoint does not ask for {type_}", code="invalid_value", param="batch_id")
            job = _another_round(session, endpoint, batch, now)
        note(session, endpoint, "webhook.redelivered", caller, now, batch=batch.id)
        return _shown(job, batch, webhooks_sql.number(session, endpoint.id, batch.id))

    told = yard.store.run(work)
    yard.bells.control(wanted.batch_id)
    return told


def _hurried(session: Session, endpoint: WebhookEndpoint, batch: Batch) -> Job | None:
    """Lock the last round's job and its batch, in that order; a job that waits is due now."""
    seen = webhooks_sql.delivery(session, endpoint.id, batch.id)
    locked = locks.jobs(session, [seen.id] if seen is not None and seen.id is not None else [])
    locks.batch(session, batch.id)
    job = webhooks_sql.delivery(session, endpoint.id, batch.id)
    if job is not None and job.id in locked and job.state == JobState.QUEUED:
        job.not_before_at = None
        session.add(job)
    return job


def _another_round(session: Session, endpoint: WebhookEndpoint, batch: Batch, now: datetime) -> Job:
    job = Job(
        kind=JobKind.CONTROL,
        verb=ControlVerb.DELIVER,
        batch_id=batch.id,
        endpoint_id=endpoint.id,
        number=webhooks_sql.next_number(session, batch.id),
        created_at=now,
    )
    session.add(job)
    session.flush()
    return job


def _shown(job: Job, batch: Batch, number: int) -> WebhookDelivery:
    waits = job.state == JobState.QUEUED
    return WebhookDelivery(
        id=webhooks.delivery_id(batch.id, number),
        type=webhooks.event_type(BatchState(batch.state)) or "",
        batch_id=batch.id,
        state=STATES[job.state],
        tries=job.attempts + (job.state == JobState.DONE),
        last_error=job.error_message,
        next_try_at=seconds(job.not_before_at or job.created_at) if waits else None,
        created_at=int(job.created_at.timestamp()),
        ended_at=seconds(job.ended_at),
    )


def _batch_id(delivery_id: str) -> str:
    return "batch_" + delivery_id.removeprefix("wh_").rpartition("_")[0]
