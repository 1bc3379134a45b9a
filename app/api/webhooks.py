"""`/v1/webhook_endpoints` (OPENAI_CONTRACT 1.11)."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from app.api.guarding import GuardedRoute, TheCaller, TheInFlight, TheYard
from app.api.in_flight import UnderWay
from app.domain.webhooks import EVENT_TYPES
from app.schemas.listing import Listing
from app.schemas.webhooks import (
    EventTypes,
    NewWebhookEndpoint,
    Redelivery,
    SecretRotation,
    WebhookDelivery,
    WebhookEndpointChanges,
    WebhookEndpointDeleted,
    WebhookEndpointObject,
    WebhookEndpointWithSecret,
    WebhookTest,
    WebhookTestResult,
)
from app.services import delivery_views, webhook_samples, webhooks

router = APIRouter(route_class=GuardedRoute, tags=["webhooks"])

Limit = Annotated[int, Query(ge=1, le=webhooks.MAX_LISTED)]


@router.get("/v1/webhook_event_types")
def event_types() -> EventTypes:
    """List what an endpoint may ask for."""
    return EventTypes(data=list(EVENT_TYPES))


@router.post("/v1/webhook_endpoints")
def create(yard: TheYard, caller: TheCaller, wanted: NewWebhookEndpoint) -> WebhookEndpointWithSecret:
    """Make an endpoint; its signing secret is in this answer and nowhere else."""
    return webhooks.create(yard, caller, wanted)


@router.get("/v1/webhook_endpoints")
def listed(
    yard: TheYard, caller: TheCaller, after: str | None = None, limit: Limit = 20
) -> Listing[WebhookEndpointObject]:
    """List endpoints, newest first."""
    return webhooks.listed(yard, caller, after=after, limit=limit)


@router.get("/v1/webhook_endpoints/{endpoint_id}")
def retrieve(yard: TheYard, caller: TheCaller, endpoint_id: str) -> WebhookEndpointObject:
    """Show an endpoint, with how its last deliveries went."""
    return webhooks.retrieve(yard, caller, endpoint_id)


@router.post("/v1/webhook_endpoints/{endpoint_id}")
def update(yard: TheYard, caller: TheCaller, endpoint_id: str, wanted: WebhookEndpointChanges) -> WebhookEndpointObject:
    """Change an endpoint; `enabled` has one told again that was disabled."""
    return webhooks.update(yard, caller, endpoint_id, wanted)


@router.delete("/v1/webhook_endpoints/{endpoint_id}")
def delete(yard: TheYard, caller: TheCaller, endpoint_id: str) -> WebhookEndpointDeleted:
    """Delete an endpoint, and drop what was not delivered yet."""
    return webhooks.delete(yard, caller, endpoint_id)


@router.post("/v1/webhook_endpoints/{endpoint_id}/rotate_secret")
def rotate_secret(
    yard: TheYard, caller: TheCaller, endpoint_id: str, wanted: SecretRotation | None = None
) -> WebhookEndpointWithSecret:
    """Give an endpoint another signing secret, shown this once."""
    keep_old = wanted is not None and wanted.keep_old_secret_active_for_24_hours
    return webhooks.rotate(yard, caller, endpoint_id, keep_old=keep_old)


@router.post("/v1/webhook_endpoints/{endpoint_id}/test")
async def send_sample(
    yard: TheYard, caller: TheCaller, in_flight: TheInFlight, endpoint_id: str, wanted: WebhookTest
) -> WebhookTestResult:
    """Send a sample event now, and return the status that it was answered with."""
    with in_flight.hold(UnderWay.WEBHOOK_TESTS, caller.org_id):
        sample = await run_in_threadpool(webhook_samples.signed_sample, yard, caller, endpoint_id, wanted)
        return await webhook_samples.send(yard, caller, endpoint_id, wanted, sample)


@router.get("/v1/webhook_endpoints/{endpoint_id}/deliveries")
def deliveries(
    yard: TheYard, caller: TheCaller, endpoint_id: str, after: str | None = None, limit: Limit = 20
) -> Listing[WebhookDelivery]:
    """List deliveries, newest first, each with its last error."""
    return delivery_views.listed(yard, caller, endpoint_id, after=after, limit=limit)


@router.post("/v1/webhook_endpoints/{endpoint_id}/redeliver")
def redeliver(yard: TheYard, caller: TheCaller, endpoint_id: str, wanted: Redelivery) -> WebhookDelivery:
    """Tell an endpoint of a batch's end again, or for the first time what it missed; show the delivery."""
    return delivery_views.send_again(yard, caller, endpoint_id, wanted)
