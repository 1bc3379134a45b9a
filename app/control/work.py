"""The loop that takes control work: woken by a bell, and looking by itself every few seconds (PROTOCOL 6)."""

import logging
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import structlog

from app.control.beats import Beats
from app.db.jobs import DueControl
from app.db.store import DatabaseUnavailable
from app.services import control
from app.services.context import Yard
from app.services.control import ControlGrant

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
HELLO_SECONDS = 0.2
Claim = Callable[[Yard, str, str], ControlGrant | None]


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
    """One thread's worth of control work, of the kind that `claim` gives."""

    def __init__(self, yard: Yard, beats: Beats, bell: WorkBell, stopping: threading.Event, claim: Claim) -> None:
        self._yard = yard
        self._beats = beats
        self._bell = bell
        self._stopping = stopping
        self._claim = claim

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
        worker_id = self._beats.worker_id
        if worker_id is None:
            return False
        grant = self._claim(self._yard, worker_id, uuid4().hex)
        if grant is None:
            return False
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
        return True


class BatchWork(Work):
    """A batch's own control work: a small input is validated at once, everything else under a lease of its own."""

    def _one(self) -> bool:
        worker_id = self._beats.worker_id
        work = control.due(self._yard) if worker_id is not None else None
        if worker_id is None or work is None:
            return False
        return (control.is_small(work) and self._validated_at_once(worker_id, work)) or super()._one()

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
