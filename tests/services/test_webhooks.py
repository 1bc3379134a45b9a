"""Telling endpoints of a batch's end: at least once, under one id, for three days at most, and nobody waits for it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from sqlmodel import select

from app.db.tables import Event, WebhookEndpoint
from app.domain import webhooks as rules
from app.domain.errors import BadRequest, LimitReached, NotFound
from app.schemas.webhooks import NewWebhookEndpoint, WebhookDelivery, WebhookEndpointChanges, WebhookTest
from app.services import control, delivery_views, webhook_samples, webhooks
from app.services.context import Caller, Yard
from tests.fakes.webhook_receiver import WebhookReceiver
from tests.yards import USER, Controller, assert_sound, batch, cancel, created, later, machine, validated


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as found:
        yield found


class Deliverer(Controller):
    """A control worker that delivers, too."""

    def claims_delivery(self) -> control.ControlGrant | None:
        if not self.id:
            self.hello()
        return control.claim_delivery(self.yard, self.id, uuid4().hex)

    def delivers(self) -> int:
        """Try all deliveries that are due, and count them."""
        done = 0
        while (grant := self.claims_delivery()) is not None:
            control.perform(self.yard, grant)
            done += 1
        assert_sound(self.yard)
        return done


def endpoint(yard: Yard, url: str, *events: str, name: str = "mine") -> str:
    wanted = {"name": name, "url": url, "event_types": list(events or rules.EVENT_TYPES)}
    return webhooks.create(yard, USER, NewWebhookEndpoint.model_validate(wanted)).id


def deliveries(yard: Yard, endpoint_id: str) -> list[WebhookDelivery]:
    return delivery_views.listed(yard, USER, endpoint_id).data


def completed(yard: Yard) -> str:
    batch_id = validated(yard, 1)
    worker = machine(yard)
    (grant,) = worker.claim().grants
    worker.finish(batch_id, grant)
    worker.bye()
    Controller(yard).works()
    assert batch(yard, batch_id).state == "completed"
    return batch_id


def cancelled(yard: Yard) -> str:
    batch_id = created(yard, 1)
    cancel(yard, batch_id)
    Controller(yard).works()
    assert batch(yard, batch_id).state == "cancelled"
    return batch_id


def failed(yard: Yard) -> str:
    batch_id = created(yard, content=b"no json\n")
    Controller(yard).works()
    assert batch(yard, batch_id).state == "failed"
    return batch_id


def expired(yard: Yard) -> str:
    batch_id = created(yard, 1, window="1s")
    later(yard, 5)
    from app.sweeps import batch_expiry  # noqa: PLC0415

    batch_expiry.run_once(yard, 10)
    Controller(yard).works()
    assert batch(yard, batch_id).state == "expired"
    return batch_id


def kinds(yard: Yard, subject: str) -> list[str]:
    with yard.store.read() as session:
        return [event.type for event in session.exec(select(Event).where(Event.subject == subject).order_by("seq"))]


def stored(yard: Yard, endpoint_id: str) -> WebhookEndpoint:
    with yard.store.read() as session:
        return session.exec(select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id)).one()


def test_each_end_of_a_batch_is_told_to_who_asked_for_it(yard: Yard, receiver: WebhookReceiver) -> None:
    every = endpoint(yard, receiver.url, name="every")
    some = endpoint(yard, receiver.url + "/some", "batch.failed", name="some")
    ends = {f"batch.{end.__name__}": end(yard) for end in (completed, cancelled, failed, expired)}

    Deliverer(yard).delivers()

    told = {json.loads(each.body)["type"]: each for each in receiver.received if each.path == "/hook"}
    assert {type_: json.loads(each.body)["data"]["id"] for type_, each in told.items()} == ends
    assert [json.loads(each.body)["type"] for each in receiver.received if each.path == "/hook/some"] == [
        "batch.failed"
    ]
    assert {each.state for each in deliveries(yard, every)} == {"delivered"}
    assert [(each.tries, each.last_error, each.next_try_at) for each in deliveries(yard, some)] == [(1, None, None)]
    assert len({each.headers["webhook-id"] for each in receiver.received}) == 5


def test_what_is_not_taken_is_sent_again_later_under_the_same_id(yard: Yard, receiver: WebhookReceiver) -> None:
    receiver.answers(500, 503, 200)
    found = endpoint(yard, receiver.url)
    completed(yard)
    worker = Deliverer(yard)

    assert worker.delivers() == 1
    assert worker.delivers() == 0, "not before its pause is over"
    (waiting,) = deliveries(yard, found)
    assert (waiting.state, waiting.tries, waiting.last_error) == ("waiting", 1, "it answered HTTP 500")
    later(yard, 6)
    assert worker.delivers() == 1
    later(yard, 6)
    assert worker.delivers() == 0, "the pauses grow"
    later(yard, 6)
    assert worker.delivers() == 1

    (delivered,) = deliveries(yard, found)
    assert (delivered.state, delivered.tries, delivered.last_error) == ("delivered", 3, "it answered HTTP 503")
    assert len({(each.headers["webhook-id"], each.body) for each in receiver.received}) == 1
    assert len({each.headers["webhook-timestamp"] for each in receiver.received}) == 3
    assert webhooks.retrieve(yard, USER, found).gpuyard.enabled


def test_a_worker_that_dies_after_sending_sends_again(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    completed(yard)
    dies = Deliverer(yard, name="dies")
    grant = dies.claims_delivery()
    assert grant is not None
    assert Deliverer(yard).delivers() == 0, "it is leased"
    assert deliveries(yard, found)[0].state == "sending"

    later(yard, yard.timing.toleration_seconds + 10)
    from tests.yards import expire  # noqa: PLC0415

    assert expire(yard) == 1
    assert Deliverer(yard).delivers() == 1
    control.perform(yard, grant)  # it thaws, and sends; its word about it is refused

    assert len(receiver.received) == 2
    assert len({each.headers["webhook-id"] for each in receiver.received}) == 1
    assert [(each.state, each.tries) for each in deliveries(yard, found)] == [("delivered", 1)]


def test_an_endpoint_that_takes_nothing_is_given_up_and_disabled_with_the_reason(
    yard: Yard, receiver: WebhookReceiver
) -> None:
    yard = replace(yard, limits=replace(yard.limits, webhook_max_tries=3))
    receiver.answers(500)
    found = endpoint(yard, receiver.url)
    completed(yard)
    for _ in range(4):
        Deliverer(yard).delivers()
        later(yard, 60)

    (given_up,) = deliveries(yard, found)
    health = webhooks.retrieve(yard, USER, found).gpuyard
    assert (given_up.state, given_up.tries) == ("given_up", 3)
    assert not health.enabled
    assert "nothing was taken in 3 tries" in (health.disabled_reason or "")
    assert "HTTP 500" in (health.disabled_reason or "")
    assert kinds(yard, found)[-2:] == ["webhook.given_up", "webhook.disabled"]

    receiver.answers(200)
    missed = completed(yard)
    assert Deliverer(yard).delivers() == 0, "it is told nothing while it is disabled"
    assert webhooks.update(yard, USER, found, WebhookEndpointChanges(enabled=True)).gpuyard.disabled_reason is None
    told = completed(yard)
    assert Deliverer(yard).delivers() == 1
    assert missed not in {each.batch_id for each in deliveries(yard, found)}
    assert deliveries(yard, found)[0].batch_id == told


def test_one_success_in_between_keeps_an_endpoint(yard: Yard, receiver: WebhookReceiver) -> None:
    yard = replace(yard, limits=replace(yard.limits, webhook_max_tries=2))
    found = endpoint(yard, receiver.url)
    first = completed(yard)
    receiver.answers(500)
    Deliverer(yard).delivers()
    receiver.answers(200)
    completed(yard)
    Deliverer(yard).delivers()
    receiver.answers(500)
    later(yard, 60)
    Deliverer(yard).delivers()

    assert {each.batch_id: each.state for each in deliveries(yard, found)}[first] == "given_up"
    assert webhooks.retrieve(yard, USER, found).gpuyard.enabled


def test_one_that_says_gone_is_disabled_at_once(yard: Yard, receiver: WebhookReceiver) -> None:
    receiver.answers(410)
    found = endpoint(yard, receiver.url)
    completed(yard)
    Deliverer(yard).delivers()
    assert deliveries(yard, found)[0].state == "dropped"
    assert "410" in (webhooks.retrieve(yard, USER, found).gpuyard.disabled_reason or "")


def test_what_waits_for_a_deleted_endpoint_is_dropped(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    completed(yard)
    webhooks.delete(yard, USER, found)
    assert Deliverer(yard).delivers() == 1
    assert receiver.received == []
    with pytest.raises(NotFound):
        webhooks.retrieve(yard, USER, found)
    completed(yard)
    assert Deliverer(yard).delivers() == 0


def test_one_that_fails_waits_behind_one_that_answers_and_has_one_try_at_a_time(
    yard: Yard, receiver: WebhookReceiver
) -> None:
    receiver.answers(500)
    bad = endpoint(yard, receiver.url + "/bad", name="bad")
    completed(yard)
    Deliverer(yard).delivers()
    good = endpoint(yard, receiver.url + "/good", name="good")
    receiver.answers(200)
    completed(yard)
    completed(yard)
    later(yard, 6)

    worker = Deliverer(yard)
    first, second, third = (worker.claims_delivery() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is None, "each has one"
    control.perform(yard, first)
    assert receiver.received[-1].path == "/hook/good"
    assert deliveries(yard, bad)[0].state == "waiting"
    assert [each.state for each in deliveries(yard, good)] == ["waiting", "delivered"]


def test_finalizing_has_its_own_claims_and_waits_for_no_delivery(yard: Yard, receiver: WebhookReceiver) -> None:
    endpoint(yard, receiver.url)
    completed(yard)
    failed(yard)
    worker = Controller(yard).hello()
    assert control.claim_control(yard, worker.id, "r") is None
    assert receiver.received == []


def test_the_batch_has_ended_for_its_readers_before_anybody_was_told(yard: Yard, receiver: WebhookReceiver) -> None:
    endpoint(yard, receiver.url)
    batch_id = completed(yard)
    before = kinds(yard, batch_id)
    Deliverer(yard).delivers()
    assert kinds(yard, batch_id) == before
    assert before[-1] in {"batch.completed", "lease.reported"}


def test_a_copy_of_the_database_without_the_key_signs_nothing(
    yard: Yard, receiver: WebhookReceiver, tmp_path: Path
) -> None:
    found = endpoint(yard, receiver.url)
    completed(yard)
    other = tmp_path / "other.key"
    other.write_bytes(b"x" * 32)
    for key_file, why in ((tmp_path / "none.key", "cannot be read"), (other, "rotate its secret")):
        copied = replace(yard, webhooks=replace(yard.webhooks, key_file=key_file))
        Deliverer(copied).delivers()
        assert why in (deliveries(yard, found)[0].last_error or "")
        later(yard, 60)
    with pytest.raises(BadRequest, match="rotate"):
        webhook_samples.signed_sample(copied, USER, found, WebhookTest(event_type="batch.failed"))
    webhooks.rotate(copied, USER, found, keep_old=False)
    assert Deliverer(copied).delivers() == 1
    assert len(receiver.received) == 1


def test_nothing_stored_gives_a_secret_away(yard: Yard, receiver: WebhookReceiver) -> None:
    wanted = NewWebhookEndpoint(name="mine", url=receiver.url, event_types=["batch.failed"])
    made = webhooks.create(yard, USER, wanted)
    row = stored(yard, made.id).model_dump_json()
    assert made.signing_secret not in row
    assert made.signing_secret.removeprefix("whsec_")[:8] not in row
    with yard.store.read() as session:
        events = " ".join(json.dumps(event.data) for event in session.exec(select(Event)))
    assert made.signing_secret.removeprefix("whsec_")[:8] not in events


def test_an_event_that_is_asked_for_twice_is_kept_once(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url, "batch.failed", "batch.expired", "batch.failed")
    assert webhooks.retrieve(yard, USER, found).event_types == ["batch.failed", "batch.expired"]
    twice = WebhookEndpointChanges(event_types=["batch.failed", "batch.failed"])
    assert webhooks.update(yard, USER, found, twice).event_types == ["batch.failed"]
    assert kinds(yard, found) == ["webhook.created", "webhook.changed"]
    webhooks.update(yard, USER, found, twice)
    assert kinds(yard, found) == ["webhook.created", "webhook.changed"], "nothing changed"


def test_another_orgs_endpoint_is_not_there(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    stranger = Caller("org_2", None, "stranger", frozenset({"admin"}))
    for call in (
        lambda: webhooks.retrieve(yard, stranger, found),
        lambda: webhooks.update(yard, stranger, found, WebhookEndpointChanges(name="x")),
        lambda: webhooks.delete(yard, stranger, found),
        lambda: webhooks.rotate(yard, stranger, found, keep_old=False),
        lambda: webhook_samples.signed_sample(yard, stranger, found, WebhookTest(event_type="batch.failed")),
        lambda: delivery_views.listed(yard, stranger, found),
    ):
        with pytest.raises(NotFound):
            call()
    assert webhooks.listed(yard, stranger).data == []


def test_an_org_has_so_many_endpoints_and_no_more(yard: Yard, receiver: WebhookReceiver) -> None:
    for number in range(yard.limits.org.webhook_endpoints):
        endpoint(yard, receiver.url, name=f"n{number}")
    with pytest.raises(LimitReached, match="org_webhook_endpoints"):
        endpoint(yard, receiver.url)
    pages = webhooks.listed(yard, USER, limit=30)
    rest = webhooks.listed(yard, USER, limit=30, after=pages.last_id)
    assert (pages.has_more, rest.has_more) == (True, False)
    assert [each.name for each in [*pages.data, *rest.data]] == [f"n{n}" for n in reversed(range(50))]


def test_deliveries_are_paged_newest_first(yard: Yard, receiver: WebhookReceiver) -> None:
    found = endpoint(yard, receiver.url)
    ends = [cancelled(yard) for _ in range(3)]
    first = delivery_views.listed(yard, USER, found, limit=2)
    second = delivery_views.listed(yard, USER, found, limit=2, after=first.last_id)
    assert (first.has_more, second.has_more) == (True, False)
    assert [each.batch_id for each in [*first.data, *second.data]] == ends[::-1]
    with pytest.raises(BadRequest):
        delivery_views.listed(yard, USER, found, after="wh_none_0")
