"""The runtimes beside this worker: which are alive, which take rows, and how a row is run there.

One lock guards all of it, what rows' ends say about them (`ends`), and the rows that wait (`ways`): a row takes it
twice, once for its place and once to give that back and take the next.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from app.domain.parameters import NONE
from app.domain.rows import Reply, Row, RowError, RowErrorCode
from app.domain.runtimes import RuntimeFacts, RuntimeLoad
from app.schemas.workers import RuntimeInfo
from app.worker.breaker import Breaker
from app.worker.clock import Clock
from app.worker.judging import Judging
from app.worker.looks import Looks
from app.worker.parameters import lacking, unsupported_by, without_parameters
from app.worker.places import Place
from app.worker.routing import knowing, refused
from app.worker.runtime_infos import infos, reason
from app.worker.units import Run
from app.worker.ways import Ways
from executors.base import BaseExecutor, Ending
from executors.cancellation import CancelToken

DOWN_SECONDS = 300.0
log = structlog.get_logger("gpuyard.worker")


class RuntimeGone(Exception):
    """Nobody here can say whether the row's model is served: another worker may know."""


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
        self.clock = clock
        self.places = [
            Place(executor, Breaker(clock, down_seconds), fetches=pull_models and executor.pulls)
            for executor in executors
        ]
        self.ways = Ways(self.places)
        self.lock = self.ways.lock
        self.ends = Judging(self.ways, clock)
        self._looks = Looks(self._note)
        self._troubles = [""] * len(self.places)

    # --- what they are

    def probe(self, *, troubled_only: bool = False) -> bool:
        """Look at the runtimes. True when something changed. Slow: for the probes' own thread."""
        wanted = [
            place for place in self.places if not (troubled_only and place.facts.alive and place.breaker.is_closed)
        ]
        return self._looks.look_at(wanted)

    def forget(self) -> None:
        """Have the next look at each runtime ask for its models, too."""
        for place in self.places:
            try:
                place.executor.forget()
            except Exception:  # a third party's executor
                log.exception("runtime.forget_failed", runtime=place.executor.name)

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
        return infos(self.places)

    def close(self) -> None:
        """Let go of all runtimes; rows in flight fail."""
        for place in self.places:
            place.executor.close()

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

    def look(self) -> bool:
        """Let the breakers do what time has brought, and wake lanes. True when something changed that others see."""
        with self.lock:
            changed = [place for place in self.places if place.breaker.look()]
            if changed:
                self.ways.changed()
            self.ways.wake()
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
                self.ways.changed()
                self.ways.on_trouble()
        if found != before:
            log.info("runtime.changed", runtime=found.name, alive=found.alive, reason=found.reason or None)
        return is_new

    def _unserved(self, row: Row) -> Reply:
        if not self.all_alive:
            raise RuntimeGone(f"no runtime that is alive serves {row.model}")
        if places := knowing(self.places, row):
            return refused(row, places)
        message = f"The model {row.model!r} is not served here any more."
        return Reply(error=RowError(RowErrorCode.MODEL_NOT_FOUND, message))


def _checked(run: Run, reply: object) -> Reply:
    if not isinstance(reply, Reply):  # a third party's executor
        name = run.place.facts.name if run.place is not None else "nobody"
        raise TypeError(f"{name} gave {type(reply).__name__} for a row's reply")
    return reply
