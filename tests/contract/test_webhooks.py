"""T17: webhooks as the stock SDK makes, tests and unwraps them (OPENAI_CONTRACT 1.11)."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.webhooks import BatchCompletedWebhookEvent

from app.api.threads import USERS
from app.domain.org_limits import OrgLimits
from app.domain.webhooks import networks
from app.services import control
from tests.fakes.webhook_receiver import WebhookReceiver
from tests.hands import Hands, do_control_work
from tests.served import Served, rows


@pytest.fixture
def hooked(served: Served) -> Served:
    """A server that may send webhooks to this machine."""
    yard = served.app.state.yard
    served.app.state.yard = replace(yard, webhooks=replace(yard.webhooks, networks=networks(["127.0.0.0/8"])))
    return served


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as found:
        yield found


def create(client: OpenAI, url: str, **more: Any) -> Any:
    return client.webhooks.create(**{"name": "mine", "url": url, "event_types": ["batch.completed"]} | more)


def complete(served: Served) -> str:
    client = served.client()
    file = client.files.create(file=("in.jsonl", rows(2)), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    do_control_work(served)
    hands = Hands(served)
    hands.work()
    hands.close()
    do_control_work(served)
    return made.id


def test_t17_unwrap_takes_ours(hooked: Served, receiver: WebhookReceiver) -> None:
    client = hooked.client()
    secret = create(client, receiver.url).signing_secret
    batch_id = complete(hooked)

    do_control_work(hooked, claim=control.claim_delivery)

    (came,) = receiver.received
    event = client.webhooks.unwrap(came.body, came.headers, secret=secret)
    assert isinstance(event, BatchCompletedWebhookEvent)
    assert (event.type, event.object, event.data.id) == ("batch.completed", "event", batch_id)
    assert event.created_at == client.batches.retrieve(batch_id).completed_at
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(came.body + b" ", came.headers, secret=secret)


def test_after_a_rotation_both_secrets_or_the_new_one_alone(hooked: Served, receiver: WebhookReceiver) -> None:
    client = hooked.client()
    made = create(client, receiver.url)
    kept = client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    client.webhooks.test(made.id, event_type="batch.failed")
    alone = client.webhooks.rotate_secret(made.id)
    client.webhooks.test(made.id, event_type="batch.failed")

    secrets = [made.signing_secret, kept.signing_secret, alone.signing_secret]
    assert [[opens(client, came, secret) for secret in secrets] for came in receiver.received] == [
        [True, True, False],
        [False, False, True],
    ]
    assert client.webhooks.retrieve(made.id).signing_secret_hint == alone.signing_secret_hint


def opens(client: OpenAI, came: Any, secret: str) -> bool:
    try:
        client.webhooks.unwrap(came.body, came.headers, secret=secret)
    except openai.InvalidWebhookSignatureError:
        return False
    return True


def test_an_endpoint_lives_as_the_sdk_says(hooked: Served, receiver: WebhookReceiver) -> None:
    client = hooked.client()
    made = create(client, receiver.url)
    changed = client.webhooks.update(made.id, name="other", event_types=["batch.failed", "batch.expired"])

    assert made.signing_secret.startswith("whsec_")
    assert (changed.name, changed.url, changed.event_types) == (
        "other",
        receiver.url,
        ["batch.failed", "batch.expired"],
    )
    assert client.webhooks.retrieve(made.id) == changed
    assert not hasattr(changed, "signing_secret")
    assert [each.id for each in client.webhooks.list()] == [made.id]
    assert set(client.webhooks.event_types.list().data) == {
        "batch.completed",
        "batch.failed",
        "batch.expired",
        "batch.cancelled",
    }
    assert client.webhooks.delete(made.id).deleted
    assert list(client.webhooks.list()) == []
    with pytest.raises(openai.NotFoundError):
        client.webhooks.retrieve(made.id)


def test_a_test_gives_the_status_or_says_why_there_is_none(hooked: Served, receiver: WebhookReceiver) -> None:
    client = hooked.client()
    made = create(client, receiver.url)
    receiver.answers(503)
    result = client.webhooks.test(made.id, event_type="batch.cancelled")
    assert (result.success, result.status_code, result.event_type) == (True, 503, "batch.cancelled")

    closed = create(client, "http://127.0.0.1:9/", name="closed")
    with pytest.raises(openai.BadRequestError, match="not answered") as caught:
        client.webhooks.test(closed.id, event_type="batch.cancelled")
    assert caught.value.code == "webhook_test_failed"


def test_tests_that_hang_hold_no_thread_of_other_calls(
    hooked: Served, receiver: WebhookReceiver, until: Callable[..., None]
) -> None:
    yard = hooked.yard
    hooked.app.state.yard = replace(yard, webhooks=replace(yard.webhooks, timeout_seconds=60))
    receiver.released.clear()

    def test(key: str, endpoint_id: str) -> None:
        with hooked.client(key, max_retries=0) as client:
            client.webhooks.test(endpoint_id, event_type="batch.failed")

    of_each, hung = OrgLimits().webhook_tests, []
    for number in range(USERS.count // of_each + 1):
        key = hooked.key("admin", org=f"org-{number}")
        made = create(hooked.client(key), receiver.url)
        hung += [threading.Thread(target=test, args=(key, made.id)) for _ in range(of_each)]
    for thread in hung:
        thread.start()
    try:
        until(lambda: len(receiver.received) == len(hung) > USERS.count, seconds=20)
        with hooked.http() as http:
            assert http.get("/v1/webhook_endpoints", timeout=10).status_code == 200
    finally:
        receiver.released.set()
        for thread in hung:
            thread.join()


def test_a_place_that_is_not_to_be_reached_is_refused_before_anything_is_sent(served: Served) -> None:
    client = served.client()
    for url in ("http://hooks.example.org/", "https://127.0.0.1/", "https://169.254.169.254/latest/meta-data"):
        with pytest.raises(openai.BadRequestError) as caught:
            create(client, url)
        assert caught.value.param == "url"
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, "https://hooks.example.org/", event_types=["response.completed"])
    assert "event_types" in str(caught.value)


def test_only_an_admin_makes_endpoints(served: Served) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        create(served.client(served.key("submit")), "https://hooks.example.org/")
