"""The control worker's hello, heartbeat and bye: the same service functions that GPU workers reach over HTTP."""

import logging
import random
import threading
from uuid import uuid4

from app.control.watch import Watch
from app.db import workers as workers_sql
from app.domain.errors import Conflict, Refusal
from app.domain.workers import Activity, ByeReason, Phase, Transport
from app.schemas.workers import Bye, Heartbeat, Hello
from app.services import heartbeats, workers
from app.services.context import Caller, Yard
from app.services.control import QUEUE
from config.logging import stand_on_each_line

log = logging.getLogger(__name__)

JITTER = 0.2
RETRY_SECONDS = 2.0


class Beats:
    """One loop: hello until it is taken, then a beat each `renew_seconds`. `worker_id` is None until the hello."""

    def __init__(self, yard: Yard, *, name: str, install_id: str, boot_id: str, stopping: threading.Event) -> None:
        self._yard = yard
        self._base = self._name = name
        self._install_id = install_id
        self._boot_id = boot_id
        self._stopping = stopping
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._caller: Caller | None = None
        self.worker_id: str | None = None
        self.watch = Watch()

    def hold(self, lease_id: int) -> None:
        """List a lease in the beats from now on."""
        with self._lock:
            self._held.add(lease_id)

    def drop(self, lease_id: int) -> None:
        """List it no more."""
        with self._lock:
            self._held.discard(lease_id)

    def run(self) -> None:
        """Beat until told to stop. A database that is away is tried again; nothing else depends on this loop."""
        wait = 0.0
        while not self._stopping.wait(wait):
            self.watch.look()
            try:
                if self.worker_id is None:
                    self._hello()
                else:
                    self._beat()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next beat is another chance
                log.warning("control heartbeat failed: %s", error)
                wait = RETRY_SECONDS
            else:
                renew = self._yard.timing.renew_seconds
                jitter = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, guards nothing
                wait = renew * jitter if self.worker_id else RETRY_SECONDS

    def bye(self) -> None:
        """Say goodbye, once."""
        if self.worker_id is None or self._caller is None:
            return
        try:
            workers.bye(self._yard, self._caller, self.worker_id, Bye(boot_id=self._boot_id, reason=ByeReason.SIGNAL))
        except Exception as error:  # noqa: BLE001 - nothing may depend on a goodbye (BY-07)
            log.debug("goodbye was not taken: %s", error)

    def _hello(self) -> None:
        with self._yard.store.read() as session:
            org_id = workers_sql.operator_org(session)
        if org_id is None:
            return
        self._caller = Caller(org_id, None, self._name, frozenset({"worker"}), operator=True)
        with self._lock:
            held = sorted(self._held)
        hello = Hello(
            name=self._name,
            install_id=self._install_id,
            boot_id=self._boot_id,
            pool=QUEUE,
            transport=Transport.CONTROL,
            phase=Phase.READY,
            slots=0,
            held=held,
        )
        try:
            self.worker_id = workers.register(self._yard, self._caller, hello).worker_id
            stand_on_each_line(worker=self._name)
        except Conflict:
            # Hosts may share a name; whose it is matters to nobody.
            self._name = f"{self._base}-{uuid4().hex[:8]}"
            raise

    def _beat(self) -> None:
        if self.worker_id is None or self._caller is None:
            return
        with self._lock:
            held = sorted(self._held)
        beat = Heartbeat(
            boot_id=self._boot_id,
            phase=Phase.READY,
            activity=Activity.BUSY if held else Activity.IDLE,
            current_invocations=len(held),
            leases=held,
        )
        try:
            heartbeats.heartbeat(self._yard, self._caller, self.worker_id, beat)
        except Refusal:
            self.worker_id = None
            raise
