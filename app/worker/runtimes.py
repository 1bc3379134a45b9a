"""The runtimes beside this worker: which are alive, which take rows, and what a row's end says about them.

One lock guards all of it, and the rows that wait (`RowQueue`): a row takes it twice, once for its place and once to
give that back and take the next.
"""

import bisect
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from app.domain.parameters import NONE
from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, RuntimeLoad
from app.schemas.workers import RuntimeInfo
from app.worker.breaker import Breaker
from app.worker.clock import Clock
from app.worker.lines import Route
from app.worker.looks import Looks
from app.worker.parameters import lacking, unsupported_by, without_parameters
from app.worker.permits import Age
from app.worker.places import Place
from app.worker.routing import fitting, knowing, refused
from app.worker.runtime_infos import info, reason
from app.worker.units import Run, Unit
from app.worker.verdicts import Came, Evidence, Verdict, came, judge
from executors.base import BaseExecutor, Ending
from executors.cancellation import CancelToken

DOWN_SECONDS = 300.0
MAX_PEACE_SECONDS = 300.0
"""A `Retry-After` beyond this is taken for this."""
DOUBT_SECONDS = 30.0
"""So long a row that was answered 404 waits for a look at its runtime at most."""
NOT_FOUND = 404
_MAX_ROUTES = 10_000
log = structlog.get_logger("gpuyard.worker")


class RuntimeGone(Exception):
    """Nobody here can say whether the row's model is served: another worker may know."""


class Waiting(Protocol):
    """Rows of one batch that wait for a place. Called with the lock held."""

    age: Age

    def wake(self) -> None:
        """Look whether a row may start."""

    def wants(self, place: Place) -> bool:
        """Tell whether a row waits for nothing but its turn there."""

    def reroute(self) -> None:
        """The runtimes or their models changed."""


class Runtimes:
    """Executors, each with its place. Thread-safe."""

    def __init__(
        self,
        executors: Sequence[BaseExecutor],
        clock: Clock,
        *,
        down_seconds: float = DOWN_SECONDS,
        pull_models: bool = False,
    ) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        self.places = [
            Place(executor, Breaker(clock, down_seconds), fetches=pull_models and executor.pulls)
            for executor in executors
        ]
        self._looks = Looks(self._note)
        self.on_trouble: Callable[[], None] = lambda: None
        """Called when a breaker or a pause begins or ends, with the lock held: it must only wake somebody."""
        self.on_doubt: Callable[[], None] = lambda: None
        """Called when a look at the runtimes is wanted now."""
        self._routes: dict[Hashable, Route] = {}
        self._ways: dict[tuple[Place, ...], Route] = {}
        self._queues: list[Waiting] = []
        self._troubles = [""] * len(self.places)
        self._unsaid: deque[Callable[[], None]] = deque()

    # --- what they are

    def probe(self, *, troubled_only: bool = False) -> bool:
        """Look at the runtimes. True when something changed. Slow: for the probes' own thread."""
        wanted = [
            place for place in self.places if not (troubled_only and place.facts.alive and place.breaker.is_closed)
        ]
        return self._looks.look_at(wanted)

    def look_now(self, place: Place) -> RuntimeFacts:
        """Look at one runtime now, in this thread."""
        return self._looks.look_now(place)

    @property
    def any_alive(self) -> bool:
        """Whether some runtime takes rows, or may be tried with one."""
        return any(place.facts.alive and not place.breaker.is_down for place in self.places)

    @property
    def all_alive(self) -> bool:
        """Whether every runtime answers its probe."""
        return all(place.facts.alive for place in self.places)

    @property
    def some_troubled(self) -> bool:
        """Whether some runtime is dead, or rows fail on it."""
        return not all(place.facts.alive and place.breaker.is_closed for place in self.places)

    @property
    def some_down(self) -> bool:
        """Whether the worker has given up on some runtime for now."""
        return any(place.breaker.is_down for place in self.places)

    @property
    def all_broken(self) -> bool:
        """Whether rows may start nowhere, but for a trial."""
        return not any(place.breaker.is_closed for place in self.places)

    @property
    def known_slots(self) -> int | None:
        """What the live runtimes work on at once, all together; None when one does not tell."""
        slots = [place.facts.slots for place in self.places if place.facts.alive]
        return sum(known) if slots and len(known := [count for count in slots if count]) == len(slots) else None

    def load(self) -> RuntimeLoad | None:
        """Read the gauges of the live runtimes, all together; None when one has none. Slow: for a thread of its own."""
        loads = [place.executor.load() for place in self.places if place.facts.alive]
        told = [load for load in loads if load is not None]
        return sum(told, RuntimeLoad(0, 0)) if told and len(told) == len(loads) else None

    @property
    def refusals(self) -> int:
        """How many rows they would not take so far, because they have too many."""
        return sum(place.executor.refusals for place in self.places)

    def infos(self) -> list[RuntimeInfo]:
        """What the control plane is told."""
        return [info(place) for place in self.places]

    def close(self) -> None:
        """Let go of all runtimes; rows in flight fail."""
        for place in self.places:
            place.executor.close()

    # --- where rows go

    def add(self, queue: Waiting) -> None:
        """Tell `queue` from now on."""
        with self.lock:
            bisect.insort(self._queues, queue, key=lambda queue: queue.age)

    def remove(self, queue: Waiting) -> None:
        """Tell it no more. The lock is held."""
        if queue in self._queues:
            self._queues.remove(queue)

    def is_for_older(self, queue: Waiting, place: Place) -> bool:
        """Tell whether a place is for an older batch's row than those of `queue`. The lock is held."""
        for other in self._queues:
            if other is queue:
                return False
            if other.wants(place):
                return True
        return False

    def wake(self) -> None:
        """Have every queue look whether a row may start. The lock is held."""
        for queue in self._queues:
            queue.wake()

    def route(self, row: Row) -> Route:
        """Give the way of rows like this one as the runtimes are now; the same one for all rows that go it."""
        kind = (row.model, row.endpoint, row.parameters, row.may_drop)
        route = self._routes.get(kind)
        if route is None:
            places = fitting(row, knowing(self.places, row))
            route = self._ways.get(places)
            if route is None:
                route = self._ways[places] = Route(places)
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[kind] = route
        return route

    # --- a row

    def execute(
        self, run: Run, *, timeout: float, cancelled: CancelToken, begun: Callable[[], Reply] | None = None
    ) -> Reply:
        """Run a row on its place, or wait for one that has `begun`.

        Raises RowCancelled, and RuntimeGone when nobody can say who serves it.
        """
        if begun is not None:
            return _checked(run, begun())
        if run.place is None:
            return self._unserved(run.unit.row)
        lacks = lacking(run.unit.row, run.place.unsupported)
        if lacks is None:  # since it got its place
            return refused(run.unit.row, [run.place])
        row, dropped = without_parameters(run.unit.row, lacks)
        reply = _checked(run, run.place.executor.execute(row, timeout=timeout, cancelled=cancelled))
        return replace(reply, dropped=dropped) if dropped else reply

    def begin(self, run: Run, *, timeout: float, cancelled: CancelToken, ended: Callable[[Ending], None]) -> bool:
        """Begin a row on its place, without waiting for its end. False: `execute` it."""
        place, row = run.place, run.unit.row
        if place is None or lacking(row, place.unsupported) != NONE:
            return False
        return place.executor.begin(row, timeout=timeout, cancelled=cancelled, ended=ended)

    def judge(self, run: Run, unit: Unit, reply: Reply, *, timeout: float, is_news: bool = True) -> Verdict:
        """Say what becomes of a row of this run, and take note of what its end says about the runtime.

        Not `is_news`: the same reply was judged for another row of the run, and says of the runtime no more than once.
        """
        what, place = came(reply), run.place
        if place is None:
            return Verdict.KEEP
        if what is Came.UNASKED:  # else rows that no runtime saw would make one that hangs look alive
            self.given_up(run)
            return Verdict.KEEP
        if what is Came.ANSWER:
            place.answered_at = self.clock()
            if place.breaker.failures or not place.breaker.is_closed:
                with self.lock:
                    self._answered(place)
                self._speak()
            return Verdict.LATER if reply.status == NOT_FOUND and self._may_be_gone(unit, place) else Verdict.KEEP
        with self.lock:
            verdict = self._judge(run, unit, place, what, reply, timeout, is_news=is_news)
        self._speak()
        return verdict

    def _may_be_gone(self, unit: Unit, place: Place) -> bool:
        """A 404 may say that the model was replaced: the row waits for a look, and then runs once more or elsewhere."""
        now = self.clock()
        if unit.missing_since is None:
            unit.missing_since = now
            self.on_doubt()
            return True
        return place.looked_at <= unit.missing_since and now - unit.missing_since < DOUBT_SECONDS

    def given_up(self, run: Run) -> None:
        """The row was cut, or failed by itself: that says nothing about the runtime."""
        if run.is_trial and run.place is not None:
            with self.lock:
                run.place.breaker.given_up(run.trial)
                self.wake()

    def look(self) -> bool:
        """Let the breakers do what time has brought, and wake lanes. True when something changed that others see."""
        with self.lock:
            changed = [place for place in self.places if place.breaker.look()]
            if changed:
                self._changed()
            self.wake()
            # Also of rows that fail and are answered again: else a sound runtime is called failing for half a minute.
            before, self._troubles = self._troubles, [reason(place.facts, place.breaker) for place in self.places]
            is_news = self._troubles != before
        for place in changed:
            told = log.error if place.breaker.is_down else log.info
            told("runtime.down" if place.breaker.is_down else "runtime.on_probation", runtime=place.facts.name)
        return bool(changed) or is_news

    @property
    def next_look_at(self) -> float:
        """When `look` is due; infinity while nothing is wrong."""
        with self.lock:
            return min((place.breaker.next_at for place in self.places), default=float("inf"))

    def _note(self, place: Place, found: RuntimeFacts) -> bool:
        unsupported = unsupported_by(place.executor, found.endpoints, place.unsupported)
        with self.lock:
            before, was_closed = place.facts, place.breaker.is_closed
            if found.alive:
                place.breaker.lives()
            else:
                place.breaker.died(found.reason)
            is_new = found != before or unsupported != place.unsupported or place.breaker.is_closed != was_closed
            place.facts, place.unsupported, place.looked_at = found, unsupported, self.clock()
            if is_new:
                self._changed()
                self.on_trouble()
        if found != before:
            log.info("runtime.changed", runtime=found.name, alive=found.alive, reason=found.reason or None)
        return is_new

    def _judge(
        self, run: Run, unit: Unit, place: Place, what: Came, reply: Reply, timeout: float, *, is_news: bool
    ) -> Verdict:
        breaker, now = place.breaker, self.clock()
        others_hang = what is Came.SILENCE and place.others_hang(run, now, timeout)
        lives = what is Came.SILENCE and place.answered_at > run.began_at and not others_hang
        if what is Came.BREAKDOWN or (lives and breaker.is_closed):
            if run.is_trial:
                self._answered(place)
        elif is_news:
            self._failed(run, place, _said(reply), min(reply.retry_after, MAX_PEACE_SECONDS))
        if what is Came.REFUSAL and unit.refused_since is None:
            unit.refused_since = run.began_at
        verdict = judge(
            what,
            Evidence(
                now=now,
                began_at=run.began_at,
                timeout=timeout,
                is_closed=breaker.is_closed,
                answered_at=place.answered_at,
                others_hang=others_hang,
                is_alone=run.is_alone,
                is_trial=run.is_trial,
                doubts=unit.doubts,
                refused_since=unit.refused_since if unit.refused_since is not None else now,
            ),
        )
        unit.doubts += verdict in {Verdict.LAST, Verdict.ALONE} and what is not Came.REFUSAL
        unit.refusals = unit.refusals + 1 if what is Came.REFUSAL else 0
        if what is not Came.REFUSAL or not breaker.is_closed:
            unit.refused_since = None  # waiting for a runtime that is down is nobody's time
        return verdict

    def _failed(self, run: Run, place: Place, why: str, not_before: float) -> None:
        was_closed = place.breaker.is_closed
        was_down = place.breaker.is_down
        place.breaker.failed(why, trial=run.trial, not_before=not_before)
        if was_closed and not place.breaker.is_closed:
            self._unsaid.append(partial(log.warning, "runtime.failing", runtime=place.facts.name, why=why[:500]))
        if was_closed or run.is_trial or was_down != place.breaker.is_down:
            self.on_trouble()
        if was_down != place.breaker.is_down:
            self._changed()

    def _answered(self, place: Place) -> None:
        was_closed, was_down = place.breaker.is_closed, place.breaker.is_down
        place.breaker.answered()
        if was_down:
            self._changed()
        if not was_closed:
            if place.breaker.is_closed:
                self._unsaid.append(partial(log.info, "runtime.answers_again", runtime=place.facts.name))
            self.on_trouble()
            self.wake()

    def _unserved(self, row: Row) -> Reply:
        if not self.all_alive:
            raise RuntimeGone(f"no runtime that is alive serves {row.model}")
        if places := knowing(self.places, row):
            return refused(row, places)
        message = f"The model {row.model!r} is not served here any more."
        return Reply(error=RowError(RowErrorCode.MODEL_NOT_FOUND, message))

    def _speak(self) -> None:
        """Log what was to be said while the lock was held: where a log blocks, no row waits for it but this one."""
        with suppress(IndexError):
            while True:
                self._unsaid.popleft()()

    def _changed(self) -> None:
        self._routes.clear()
        for queue in self._queues:
            queue.reroute()


def _checked(run: Run, reply: object) -> Reply:
    if not isinstance(reply, Reply):  # a third party's executor
        name = run.place.facts.name if run.place is not None else "nobody"
        raise TypeError(f"{name} gave {type(reply).__name__} for a row's reply")
    return reply


def _said(reply: Reply) -> str:
    return reply.error.message if reply.error is not None else f"it answered {reply.status}"
