"""Telling an endpoint again: another round under the same id, with the same bytes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app.domain.errors import BadRequest, Conflict, NotFound
from app.schemas.webhooks import Redelivery, WebhookDelivery, WebhookEndpointChanges
from app.services import delivery_views, webhooks
from app.services.context import Yard
from tests.fakes.webhook_receiver import WebhookReceiver
from tests.services.test_webhooks import Deliverer, cancelled, deliveries, endpoint, failed, kinds
from tests.yards import USER, created, later


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as found:
        yield found


def again(yard: Yard, endpoint_id: str, batch_id: str) -> WebhookDelivery:
    return delivery_views.send_again(yard, USER, endpoint_id, Redelivery(batch_id=batch_id))


def came(receiver: WebhookReceiver) -> list[tuple[str, bytes]]:
    return [(each.headers["webhook-id"], each.body) for each in receiver.received]


def test_what_was_given_up_has_another_round_of_tries(yard: Yard, receiver: WebhookReceiver) -> None:
    yard = replace(yard, limits=replace(yard.limits, webhook_max_tries=1))
    other = endpoint(yard, receiver.url + "/other", name="other")
    found = endpoint(yard, receiver.url)
    batch_id = cancelled(yard)
    receiver.answers(200, 500)
    Deliverer(yard).delivers()
    assert [each.state for each in deliveries(yard, found)] == ["given_up"]
    webhooks.update(yard, USER, found, WebhookEndpointChanges(enabled=True))

    told = again(yard, found, batch_id)
    assert (told.state, told.tries, told.batch_id) == ("waiting", 0, batch_id)
    assert deliveries(yard, found) == [told], "the last round alone is shown"
    receiver.answers(500)
    later(yard, 100)
    Deliverer(yard).delivers()
    webhooks.update(yard, USER, found, WebhookEndpointChanges(enabled=True))
    again(yard, found, batch_id)
    receiver.answers(200)
    Deliverer(yard).delivers()

    assert [(each.id, each.state, each.tries) for each in deliveries(yard, found)] == [(told.id, "delivered", 1)]
    assert [each.state for each in deliveries(yard, other)] == ["delivered"]
    to_other, *to_found = came(receiver)
    assert to_found == [to_found[0]] * 3
    assert to_other[0] != to_found[0][0]
    assert kinds(yard, found).count("webhook.redelivered") == 2


def test_what_was_delivered_is_delivered_again(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    first, second = cancelled(yard), cancelled(yard)
    Deliverer(yard).delivers()
    again(yard, found, first)
    assert [(each.batch_id, each.state) for each in deliveries(yard, found)] == [
        (first, "waiting"),
        (second, "delivered"),
    ]
    page = delivery_views.listed(yard, USER, found, limit=1)
    assert [each.batch_id for each in delivery_views.listed(yard, USER, found, after=page.last_id).data] == [second]
    Deliverer(yard).delivers()
    assert came(receiver)[2] == came(receiver)[0]


def test_what_waits_for_its_next_try_is_tried_now_and_stays_one(yard: Yard, receiver: WebhookReceiver) -> None:
    receiver.answers(500, 200)
    found = endpoint(yard, receiver.url)
    batch_id = cancelled(yard)
    worker = Deliverer(yard)
    worker.delivers()
    assert worker.delivers() == 0, "its pause is not over"
    again(yard, found, batch_id)
    again(yard, found, batch_id)
    assert worker.delivers() == 1
    assert [(each.state, each.tries) for each in deliveries(yard, found)] == [("delivered", 2)]


def test_what_is_being_sent_is_left_alone(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    batch_id = cancelled(yard)
    worker = Deliverer(yard)
    assert worker.claims_delivery() is not None
    assert again(yard, found, batch_id).state == "sending"
    assert worker.claims_delivery() is None


def test_what_was_missed_while_disabled_is_sent_once_it_is_enabled(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url, "batch.cancelled")
    webhooks.update(yard, USER, found, WebhookEndpointChanges(enabled=False))
    missed, of_no_interest = cancelled(yard), failed(yard)
    with pytest.raises(Conflict, match="disabled"):
        again(yard, found, missed)
    webhooks.update(yard, USER, found, WebhookEndpointChanges(enabled=True))
    later(yard, 1000)
    again(yard, found, missed)
    with pytest.raises(BadRequest, match="does not ask for"):
        again(yard, found, of_no_interest)
    Deliverer(yard).delivers()
    assert [(each.batch_id, each.state) for each in deliveries(yard, found)] == [(missed, "delivered")]
    assert len(receiver.received) == 1


def test_what_is_not_there_or_has_not_ended_is_refused(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    with pytest.raises(Conflict, match="has not ended"):
        again(yard, found, created(yard, 1))
    with pytest.raises(NotFound):
        again(yard, found, "batch_none")
    with pytest.raises(NotFound):
        again(yard, "whe_none", cancelled(yard))
