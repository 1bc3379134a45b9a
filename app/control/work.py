"""The loop that takes control work: woken by a bell, and looking by itself every few seconds (PROTOCOL 6)."""

import logging
import threading
import time
from uuid import uuid4

import structlog

from app.control.beats import Beats
from app.db.jobs import DueControl
from app.db.store import DatabaseUnavailable
from app.services import control
from app.services.context import Yard
from app.services.control import ControlGrant
from app.services.in_flight import InFlight

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
HELLO_SECONDS = 0.2


class WorkBell:
    """Wakes one thread a ring: a piece of work is rung for once, and who looks in vain holds up who does not."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._rung = 0
        self._heard = threading.Condition()

    def ring(self, times: int = 1) -> None:
        """Let so many threads look; those that are busy look when they are done."""
        with self._heard:
            self._rung = min(self._threads, self._rung + times)
            self._heard.notify(times)

    def wait(self, timeout: float) -> None:
        """Wait for a ring of one's own, or `timeout` seconds."""
        with self._heard:
            self._heard.wait_for(lambda: self._rung > 0, timeout)
            self._rung = max(0, self._rung - 1)


class Work:
    """One thread's worth of control work."""

    def __init__(self, yard: Yard, beats: Beats, bell: WorkBell, stopping: threading.Event) -> None:
        self._yard = yard
        self._beats = beats
        self._bell = bell
        self._stopping = stopping

    def run(self) -> None:
        """Take and do work until told to stop."""
        while not self._stopping.is_set():
            try:
                while not self._stopping.is_set() and self._one():
                    pass
            except DatabaseUnavailable as error:  # six threads, every five seconds, for as long as it is away
                log.warning("control work cannot be claimed: %s", error)
            except Exception:
                log.exception("control work could not be claimed")
            self._bell.wait(LOOK_SECONDS if self._beats.worker_id else HELLO_SECONDS)

    def _one(self) -> bool:
        """Take one piece of work and do it; False when there was none."""
        raise NotImplementedError

    def _do(self, grant: ControlGrant) -> None:
        self._beats.hold(grant.lease_id)
        outcome, began = "ended", time.monotonic()
        ids = {"batch_id": grant.batch_id, "job_id": grant.job_id, "lease_id": grant.lease_id}
        what = f"{grant.verb.value} of {grant.batch_id}"
        with structlog.contextvars.bound_contextvars(**ids), self._beats.watch.doing(what):
            try:
                control.perform(self._yard, grant)
            except Exception as error:
                outcome = "failed"
                log.exception("%s failed and will be tried again", what)
                control.put_off(self._yard, grant, error)
            finally:
                self._beats.drop(grant.lease_id)
                seconds = time.monotonic() - began
                self._yard.counters.control_work.labels(grant.verb.value, outcome).observe(seconds)
                log.info("%s %s after %.2f s", what, outcome, seconds)


class BatchWork(Work):
    """A batch's own control work: a small input is validated at once, everything else under a lease of its own."""

    def _one(self) -> bool:
        worker_id = self._beats.worker_id
        work = control.due(self._yard) if worker_id is not None else None
        if worker_id is None or work is None:
            return False
        if control.is_small(work) and self._validated_at_once(worker_id, work):
            return True
        grant = control.claim_control(self._yard, worker_id, uuid4().hex)
        if grant is None:
            return False
        self._do(grant)
        return True

    def _validated_at_once(self, worker_id: str, work: DueControl) -> bool:
        began = time.monotonic()
        what, ids = f"{work.verb} of {work.batch_id}", {"batch_id": work.batch_id, "job_id": work.job_id}
        with structlog.contextvars.bound_contextvars(**ids), self._beats.watch.doing(what):
            try:
                if not control.validate_at_once(self._yard, worker_id, work, uuid4().hex):
                    return False
            except Exception as error:  # noqa: BLE001 - it comes again under a lease, and there it is put off
                log.warning("%s is validated under a lease of its own: %s", work.batch_id, error)
                return False
            seconds = time.monotonic() - began
            self._yard.counters.control_work.labels(work.verb, "ended").observe(seconds)
            log.info("%s ended after %.2f s", what, seconds)
        return True


class DeliveryWork(Work):
    """Deliveries of webhooks. However long one org's endpoints hang, threads are left for the others."""

    def __init__(
        self, yard: Yard, beats: Beats, bell: WorkBell, stopping: threading.Event, in_flight: InFlight
    ) -> None:
        super().__init__(yard, beats, bell, stopping)
        self._in_flight = in_flight

    def _one(self) -> bool:
        worker_id = self._beats.worker_id
        if worker_id is None:
            return False
        with self._in_flight.turn:
            grant = control.claim_delivery(self._yard, worker_id, uuid4().hex, but_orgs=self._in_flight.full())
            if grant is None:
                return False
            self._in_flight.begin(grant.org_id)
        try:
            self._do(grant)
        finally:
            self._in_flight.end(grant.org_id)
        return True
