"""Deliveries beside the control agent's other work: a receiver that hangs keeps no batch waiting."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlmodel import col, select

from app.control.agent import DELIVERIES_OF_ORG, DELIVERY_THREADS, ControlAgent
from app.control.place import Place
from app.db.tables import Job, Org
from app.domain.jobs import JobState
from app.domain.webhooks import EVENT_TYPES
from app.schemas.batches import NewBatch
from app.schemas.webhooks import NewWebhookEndpoint, WebhookDelivery
from app.services import batches, blobs, delivery_views, files, stops, webhooks
from app.services.context import Caller, Yard
from app.services.files import Upload
from app.sweeps.election import SWEEPS
from tests.fakes.webhook_receiver import WebhookReceiver
from tests.yards import CHAT, USER, batch, cancel, created, input_row

LONG = 30.0


def wait_for(agent: ControlAgent, condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        agent.wake()
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


def test_batches_are_finalized_while_every_webhook_hangs(yard: Yard) -> None:
    with WebhookReceiver() as receiver, TemporaryDirectory() as folder:
        receiver.released.clear()
        for number in range(DELIVERY_THREADS):
            wanted = {"name": f"n{number}", "url": receiver.url, "event_types": list(EVENT_TYPES)}
            webhooks.create(yard, USER, NewWebhookEndpoint.model_validate(wanted))
        periods = dict.fromkeys(SWEEPS, 60.0)
        agent = ControlAgent(yard, place=Place(Path(folder)), periods=periods, threads=1)
        agent.start()
        try:
            first, second = created(yard), created(yard)
            cancel(yard, first)
            wait_for(agent, lambda: len(receiver.received) == DELIVERIES_OF_ORG)
            assert batch(yard, first).state == "cancelled"
            cancel(yard, second)
            wait_for(agent, lambda: batch(yard, second).state == "cancelled")
            receiver.released.set()
            wait_for(agent, lambda: _delivered(yard) >= 2 * DELIVERY_THREADS)
        finally:
            receiver.released.set()
            agent.stop()


def test_an_org_whose_endpoints_all_hang_leaves_threads_for_another_one(yard: Yard) -> None:
    yard = replace(yard, webhooks=replace(yard.webhooks, timeout_seconds=60))
    with WebhookReceiver() as hanging, WebhookReceiver() as receiver, TemporaryDirectory() as folder:
        hanging.released.clear()
        for number in range(DELIVERY_THREADS):
            wanted = {"name": f"n{number}", "url": hanging.url, "event_types": list(EVENT_TYPES)}
            webhooks.create(yard, USER, NewWebhookEndpoint.model_validate(wanted))
        agent = ControlAgent(yard, place=Place(Path(folder)), periods=dict.fromkeys(SWEEPS, 60.0), threads=1)
        agent.start()
        try:
            cancel(yard, created(yard))
            wait_for(agent, lambda: len(hanging.received) == DELIVERIES_OF_ORG)
            _has_an_end_to_be_told_of(yard, receiver.url)
            wait_for(agent, lambda: receiver.received)
            assert len(hanging.received) == DELIVERIES_OF_ORG, "no more than its share, though it was woken often"
            assert not _ended(yard), "it waited for none of them"
            assert _leased(yard) == DELIVERIES_OF_ORG, "what it cannot send is left to other control workers"
        finally:
            hanging.released.set()
            agent.stop()


def _has_an_end_to_be_told_of(yard: Yard, url: str) -> None:
    """Another org with an endpoint and a cancelled batch; its delivery is newer than all others."""
    other = Caller("org_2", None, "other", frozenset({"admin"}))
    with yard.store.begin() as session:
        session.add(Org(id=other.org_id, name="two", created_at=yard.store.now(session)))
    wanted = {"name": "theirs", "url": url, "event_types": list(EVENT_TYPES)}
    webhooks.create(yard, other, NewWebhookEndpoint.model_validate(wanted))
    key, stored = blobs.write(yard, other.org_id, [input_row(0)])
    file_id = files.create(yard, other, key, stored, Upload(purpose="batch", filename="input.jsonl")).id
    new = NewBatch(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
    stops.cancel(yard, other, batches.create(yard, other, new).id)


def _delivered(yard: Yard) -> int:
    return sum(each.state == "delivered" for each in _deliveries(yard))


def _ended(yard: Yard) -> list[WebhookDelivery]:
    return [each for each in _deliveries(yard) if each.tries]


def _leased(yard: Yard) -> int:
    hanging = [endpoint.id for endpoint in webhooks.listed(yard, USER).data]
    query = select(Job.id).where(col(Job.endpoint_id).in_(hanging), Job.state == JobState.LEASED)
    with yard.store.read() as session:
        return len(session.exec(query).all())


def _deliveries(yard: Yard) -> list[WebhookDelivery]:
    endpoints = webhooks.listed(yard, USER).data
    return [each for endpoint in endpoints for each in delivery_views.listed(yard, USER, endpoint.id).data]
