"""Webhook endpoints on OpenAI's wire, with gpuyard's additions (OPENAI_CONTRACT 1.11). Times in Unix seconds.

POST   /v1/webhook_endpoints                      NewWebhookEndpoint -> WebhookEndpointWithSecret
GET    /v1/webhook_endpoints                      -> Listing of WebhookEndpointObject
GET    /v1/webhook_endpoints/{id}                 -> WebhookEndpointObject
POST   /v1/webhook_endpoints/{id}                 WebhookEndpointChanges -> WebhookEndpointObject
DELETE /v1/webhook_endpoints/{id}                 -> WebhookEndpointDeleted
POST   /v1/webhook_endpoints/{id}/rotate_secret   SecretRotation -> WebhookEndpointWithSecret
POST   /v1/webhook_endpoints/{id}/test            WebhookTest -> WebhookTestResult
GET    /v1/webhook_endpoints/{id}/deliveries      -> Listing of WebhookDelivery, newest first
POST   /v1/webhook_endpoints/{id}/redeliver       Redelivery -> WebhookDelivery
GET    /v1/webhook_event_types                    -> EventTypes
"""

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.tokens import Label
from app.schemas.wire import Name, Wire

EventType = Literal["batch.completed", "batch.failed", "batch.expired", "batch.cancelled"]
EventTypeList = Annotated[list[EventType], Field(min_length=1, max_length=16)]
Url = Annotated[str, Field(min_length=1, max_length=4096)]
DeliveryState = Literal["waiting", "sending", "delivered", "given_up", "dropped"]


class NewWebhookEndpoint(Wire):
    """Ask for an endpoint."""

    name: Label
    url: Url
    event_types: EventTypeList


class WebhookEndpointChanges(Wire):
    """What is to change; what is not named stays as it is. `enabled` is ours: `extra_body` of the SDK."""

    name: Label | None = None
    url: Url | None = None
    event_types: EventTypeList | None = None
    enabled: bool | None = None


class SecretRotation(Wire):
    """Ask for another secret."""

    keep_old_secret_active_for_24_hours: bool = False


class WebhookTest(Wire):
    """Ask for a sample to be sent."""

    event_type: EventType


class EndpointHealth(Wire):
    """What only gpuyard says of an endpoint. A disabled one is told nothing until it is enabled."""

    enabled: bool
    disabled_at: int | None
    disabled_reason: str | None
    last_success_at: int | None
    last_failure_at: int | None
    last_error: str | None


class WebhookEndpointObject(Wire):
    """An endpoint."""

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    name: str
    url: str
    event_types: list[str]
    signing_secret_hint: str
    created_at: int
    updated_at: int
    gpuyard: EndpointHealth


class WebhookEndpointWithSecret(WebhookEndpointObject):
    """An endpoint with the secret that was just made."""

    signing_secret: str


class WebhookEndpointDeleted(Wire):
    """An endpoint is gone."""

    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: Literal[True] = True


class WebhookTestResult(Wire):
    """What the endpoint answered, whatever it was."""

    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    status_code: int
    success: Literal[True] = True


class Redelivery(Wire):
    """Ask for an endpoint to be told of a batch's end again, and now."""

    batch_id: Name


class WebhookDelivery(Wire):
    """One event on its way to one endpoint. `id` is the header `webhook-id`; `tries` counts those that ended.

    Of an event that was sent again, all but `id`, `type` and `batch_id` are of the last round.
    """

    id: str
    object: Literal["webhook_delivery"] = "webhook_delivery"
    type: str
    batch_id: str
    state: DeliveryState
    tries: int
    last_error: str | None
    next_try_at: int | None
    created_at: int
    ended_at: int | None


class EventTypes(Wire):
    """What an endpoint may ask for."""

    object: Literal["list"] = "list"
    data: list[str]
