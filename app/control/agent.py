"""The control worker's agent: takes control work under leases, renews them, and runs the sweeps (PROTOCOL 6).

It stops in this order: the work threads (each ends its job, or leaves it to the next holder), the sweepers, the
heartbeat. Every write of control work is fenced by its lease, so a thread that outlives its lease changes nothing.
"""

import logging
import threading
import time
from collections.abc import Mapping
from uuid import uuid4

from app.control.beats import Beats
from app.control.place import Place
from app.control.work import BatchWork, DeliveryWork, Work, WorkBell
from app.services.context import Yard
from app.services.in_flight import InFlight
from app.sweeps.sweeper import Sweepers

log = logging.getLogger(__name__)

DELIVERY_THREADS = 8
DELIVERIES_OF_ORG = 4
"""At a time, in one control worker."""


class ControlAgent:
    """One control worker over a yard. `periods` maps each sweep to how often it runs, in seconds."""

    def __init__(self, yard: Yard, *, place: Place, periods: Mapping[str, float], threads: int = 2) -> None:
        self.name = place.name
        self._place = place
        self._stopping = threading.Event()
        self._beats = Beats(
            yard, name=place.name, install_id=place.install_id, boot_id=uuid4().hex, stopping=self._stopping
        )
        self._bells = [WorkBell(threads), WorkBell(DELIVERY_THREADS)]
        batches, deliveries = self._bells
        self._work: list[Work] = [BatchWork(yard, self._beats, batches, self._stopping) for _ in range(threads)]
        in_flight = InFlight("deliveries", per_org=DELIVERIES_OF_ORG, in_all=DELIVERY_THREADS)
        # Of their own: a server that lets webhooks wait must keep no batch waiting.
        self._work += [
            DeliveryWork(yard, self._beats, deliveries, self._stopping, in_flight) for _ in range(DELIVERY_THREADS)
        ]
        self._sweepers = Sweepers(yard, periods=periods, runner=self.name, stopping=self._stopping)
        self._threads = [
            *(threading.Thread(target=work.run, name=f"control-work-{n}") for n, work in enumerate(self._work)),
            *self._sweepers.threads(),
            threading.Thread(target=self._beats.run, name="control-heartbeat"),
        ]
        for thread in self._threads:
            thread.daemon = True

    def start(self) -> None:
        """Start the threads. They wait for the database and its first org by themselves."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Say that there may be a piece of control work; whichever thread is free looks."""
        for bell in self._bells:
            bell.ring()

    def sweep(self, name: str) -> None:
        """Say that it is time for a sweep. An unknown name is ignored: anybody may forge a message."""
        self._sweepers.tick(name)

    def stop(self, timeout: float = 10.0) -> None:
        """Stop, for at most about `timeout` seconds."""
        self._stopping.set()
        for bell in self._bells:
            bell.ring(len(self._work))
        self._sweepers.tick("")
        end = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._beats.bye()
        self._place.close()
