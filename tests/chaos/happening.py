"""The loop of a run: it watches the rows, lets each fault happen at its moment, and puts right what it broke."""

import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import httpx
from redis.exceptions import RedisError
from sqlalchemy.exc import OperationalError

from tests.chaos.books import Books, Standing
from tests.chaos.damage import Damage
from tests.chaos.fleet import Fleet
from tests.chaos.forms import GATEWAYS, LOSSES, OF_CONTENTS, OF_WORKERS, Form, Kind
from tests.chaos.resources import Resources
from tests.chaos.schedule import Fault
from tests.e2e.yard import Yard

LOOK_SECONDS = 0.25
SAMPLE_SECONDS = 1.0


@dataclass
class Happened:
    """A fault as it was: `target` is whom it met, and times are seconds of the wall clock."""

    fault: Fault
    target: str
    at: float
    stored: int
    not_handed_in: int = 0
    """Rows that a lost worker had begun since it was lost last, and that were not stored."""
    over_at: float | None = None
    """When it was started again, thawed, answered again, or when a content was damaged."""


@dataclass
class Sample:
    """A point of the plot."""

    at: float
    answered: int
    stored: int


@dataclass
class Run:
    """Everything that a run saw."""

    began_at: float = 0.0
    ended_at: float = 0.0
    happened: list[Happened] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    not_met: list[Fault] = field(default_factory=list)


def _thaw(pid: int) -> None:
    with suppress(ProcessLookupError):  # another fault has ended it meanwhile
        os.kill(pid, signal.SIGCONT)


class DidNotEnd(AssertionError):
    """The batch has not ended within its bound, or not everything ran again."""


class Chaos:
    """One run over a batch that was created."""

    def __init__(self, yard: Yard, fleet: Fleet, books: Books, form: Form, faults: list[Fault], damage: Damage) -> None:
        self._yard = yard
        self._fleet = fleet
        self._books = books
        self._form = form
        self._damage = damage
        self._due = list(faults)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._unsettled: list[tuple[Happened, Callable[[], bool]]] = []
        self.resources = Resources()
        self.run = Run()

    def until_the_end(self, batch_id: str) -> Run:
        """Return when the batch has ended and everything runs again. Raises DidNotEnd."""
        run, end = self.run, time.monotonic() + self._form.bound_seconds
        run.began_at = time.time()
        standing = Standing("validating", 0)
        while not (standing.has_ended and not self._later and not self._unsettled):
            if time.monotonic() > end:
                raise DidNotEnd(f"not within {self._form.bound_seconds:g} s: {standing}, {self._unsettled}")
            with suppress(OperationalError):  # the database itself may be away
                standing = self._books.standing(batch_id)
            if not run.samples or time.time() - run.samples[-1].at >= SAMPLE_SECONDS:
                run.samples.append(Sample(time.time(), self._fleet.answered(), standing.stored))
            if standing.has_ended and not run.ended_at:
                run.ended_at = time.time()
                run.samples.append(Sample(run.ended_at, self._fleet.answered(), standing.stored))
                run.not_met, self._due = self._due, []
            self._let_happen(batch_id, standing)
            self._put_right()
            self.resources.look(self._pids())
            time.sleep(LOOK_SECONDS)
        return run

    def _pids(self) -> dict[str, int]:
        parts = {name: pid for name, pid in self._yard.ready["pids"].items() if isinstance(pid, int)}
        workers = {name: machine.process.pid for name, machine in self._fleet.machines.items() if machine.is_running}
        return parts | workers

    def _let_happen(self, batch_id: str, standing: Standing) -> None:
        for fault in [fault for fault in self._due if fault.at_rows <= standing.stored]:
            target = self._whom(fault)
            if target is None:
                continue  # at the next look
            self._due.remove(fault)
            met = Happened(fault, target, time.time(), standing.stored)
            self.run.happened.append(met)
            if fault.kind in OF_CONTENTS:
                self._settle(met, self._damage.begin(fault, batch_id))
            elif fault.kind in GATEWAYS:
                self._to_gateway(met)
            elif fault.kind is Kind.THREADS:
                self._fleet.allow_no_threads(target)
                self._in(fault.pause_seconds, partial(self._over, met, partial(self._fleet.allow_threads, target)))
            else:
                (self._to_worker if fault.kind in OF_WORKERS else self._to_part)(met)
            if fault.kind in LOSSES:
                begun = self._fleet.machines[target].asked_since_the_last_time()
                met.not_handed_in = len(begun - self._books.stored_rows(batch_id))

    def _whom(self, fault: Fault) -> str | None:
        """Say who is to be met: the one that was drawn, or the next one that works."""
        if fault.kind in OF_CONTENTS:
            return fault.target
        if fault.kind in GATEWAYS:
            return None if self._fleet.machines[fault.target].gateway else fault.target
        if fault.kind is Kind.THREADS:
            return fault.target if fault.target in self._fleet.working() else None
        if fault.kind not in OF_WORKERS:
            running = self._yard.ready["pids"].get(fault.target) is not None
            busy = any(met.target == fault.target for met, _ in self._unsettled)
            return fault.target if running and not busy else None
        working = self._fleet.working()
        if len(working) <= self._form.fewest_working:
            return None
        return fault.target if fault.target in working else working[0]

    # --- what happens

    def _to_worker(self, met: Happened) -> None:
        fleet, name, pause = self._fleet, met.target, met.fault.pause_seconds
        if met.fault.kind is Kind.FREEZE:
            fleet.freeze(name)
            self._in(pause, lambda: self._over(met, lambda: fleet.thaw(name)))
        elif met.fault.kind is Kind.DRAIN:
            fleet.drain(name)
            self._settle(met, lambda: fleet.has_left(name), then=lambda: self._in(pause, lambda: fleet.again(name)))
        else:
            fleet.kill(name)
            self._in(pause, lambda: self._over(met, lambda: fleet.again(name)))

    def _to_gateway(self, met: Happened) -> None:
        machine = self._fleet.machines[met.target]
        machine.stand_before(GATEWAYS[met.fault.kind])
        self._in(met.fault.pause_seconds, lambda: self._over(met, lambda: machine.stand_before("")))

    def _to_part(self, met: Happened) -> None:
        part, kind = met.target, met.fault.kind
        pid = self._yard.ready["pids"][part]
        if kind is Kind.FLUSH:
            with suppress(RedisError):  # it may have died a moment ago, which has the same effect
                self._yard.redis.flushall()
            met.over_at = met.at
        elif kind is Kind.PAUSE:
            os.kill(pid, signal.SIGSTOP)
            self._in(met.fault.pause_seconds, lambda: self._over(met, lambda: _thaw(pid)))
        else:
            os.kill(pid, signal.SIGKILL if kind is Kind.KILL else signal.SIGTERM)
            self._settle(met, lambda: self._is_back(part, pid))

    def _is_back(self, part: str, old: int) -> bool:
        if self._yard.ready["pids"].get(part) in (None, old):
            return False
        if part != "api":
            return True
        with suppress(httpx.TransportError):
            return httpx.get(f"{self._yard.url}/healthz", timeout=1).is_success
        return False

    # --- what is put right

    def _in(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), then))

    def _over(self, met: Happened, then: Callable[[], None]) -> None:
        then()
        met.over_at = time.time()

    def _settle(self, met: Happened, is_over: Callable[[], bool], then: Callable[[], None] = lambda: None) -> None:
        def settled() -> bool:
            if not is_over():
                return False
            self._over(met, then)
            return True

        self._unsettled.append((met, settled))

    def _put_right(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()
        self._unsettled = [entry for entry in self._unsettled if not entry[1]()]
