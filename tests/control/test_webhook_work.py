"""Deliveries beside the control agent's other work: a receiver that hangs keeps no batch waiting."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from app.control.agent import DELIVERY_THREADS, ControlAgent
from app.control.place import Place
from app.domain.webhooks import EVENT_TYPES
from app.schemas.webhooks import NewWebhookEndpoint
from app.services import delivery_views, webhooks
from app.services.context import Yard
from app.sweeps.election import SWEEPS
from tests.fakes.webhook_receiver import WebhookReceiver
from tests.yards import USER, batch, cancel, created

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
            wait_for(agent, lambda: len(receiver.received) == DELIVERY_THREADS)
            assert batch(yard, first).state == "cancelled"
            cancel(yard, second)
            wait_for(agent, lambda: batch(yard, second).state == "cancelled")
            receiver.released.set()
            wait_for(agent, lambda: _delivered(yard) >= 2 * DELIVERY_THREADS)
        finally:
            receiver.released.set()
            agent.stop()


def _delivered(yard: Yard) -> int:
    endpoints = webhooks.listed(yard, USER).data
    found = [each for endpoint in endpoints for each in delivery_views.listed(yard, USER, endpoint.id).data]
    return sum(each.state == "delivered" for each in found)
