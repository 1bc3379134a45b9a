"""The test of a webhook endpoint: a sample event is sent now, and the caller waits for the answer without a thread."""

import logging
from uuid import uuid4

from app.domain import webhooks as rules
from app.domain.errors import BadRequest
from app.schemas.webhooks import WebhookTest, WebhookTestResult
from app.services import posting, webhooks
from app.services.context import Caller, Yard
from app.services.posting import Call
from app.services.webhooks import SecretUnknown

log = logging.getLogger(__name__)


def signed_sample(yard: Yard, caller: Caller, endpoint_id: str, wanted: WebhookTest) -> Call:
    """Make the call that tries an endpoint. Raises NotFound, and BadRequest when it cannot be signed."""
    with yard.store.read() as session:
        endpoint = webhooks.own(session, caller, endpoint_id)
        now = yard.store.now(session)
    sample = f"batch_test_{uuid4().hex}"
    body = rules.payload(wanted.event_type, sample, created_at=int(now.timestamp()))
    try:
        headers = webhooks.signed(yard, endpoint, rules.delivery_id(sample, 0), body, now)
    except SecretUnknown as error:
        raise BadRequest(str(error), code="webhook_test_failed") from None
    return Call(endpoint.org_id, endpoint.url, body, headers)


async def send(yard: Yard, caller: Caller, endpoint_id: str, wanted: WebhookTest, call: Call) -> WebhookTestResult:
    """Send a sample in the event loop, and return the status of its answer. Raises BadRequest when there is none."""
    web = yard.webhooks
    answer = await posting.post(call, allowed=web.networks, timeout_seconds=web.timeout_seconds)
    if answer.status is None:
        log.info("the test of %s failed: %s", endpoint_id, answer.detail)
        error = answer.told_to(operator=caller.operator).error
        raise BadRequest(f"the webhook was not answered: {error}", code="webhook_test_failed", param="url")
    return WebhookTestResult(webhook_endpoint_id=endpoint_id, event_type=wanted.event_type, status_code=answer.status)
