"""What a row's end says about the runtime that it ran on, and what becomes of the row.

Whatever is to be logged is logged when the lock was given back: where a log blocks, no row waits for it but this one.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from app.domain.rows import Reply
from app.worker.clock import Clock
from app.worker.places import Place
from app.worker.units import Run, Unit
from app.worker.verdicts import MAY_BE_A_GATEWAYS, NOT_BEGUN, Came, Evidence, Verdict, came, judge
from app.worker.ways import Ways
from executors.error_bodies import misses_model

MAX_PEACE_SECONDS = 300.0
"""A `Retry-After` beyond this is taken for this."""
DOUBT_SECONDS = 30.0
"""So long a row whose model was not found waits for a look at its runtime at most."""
log = structlog.get_logger("gpuyard.worker")


class Judging:
    """One a worker. Thread-safe."""

    def __init__(self, ways: Ways, clock: Clock) -> None:
        self._ways = ways
        self._clock = clock
        self.on_doubt: Callable[[], None] = lambda: None
        """Called when a look at the runtimes is wanted now."""
        self._unsaid: deque[Callable[[], None]] = deque()

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
            place.answered_at = self._clock()
            place.odd_since = None
            if place.breaker.failures or not place.breaker.is_closed:
                with self._ways.lock:
                    self._answered(place)
                self._speak()
            is_missed = not reply.ok and misses_model(reply.status, reply.body, unit.row.model)
            return Verdict.LATER if is_missed and self._may_be_gone(unit, place) else Verdict.KEEP
        with self._ways.lock:
            verdict = self._judge(run, unit, place, what, reply, timeout, is_news=is_news)
        self._speak()
        return verdict

    def _may_be_gone(self, unit: Unit, place: Place) -> bool:
        """The model may have been replaced: the row waits for a look, and then runs once more or elsewhere."""
        now = self._clock()
        if unit.missing_since is None:
            unit.missing_since = now
            self.on_doubt()
            return True
        return place.looked_at <= unit.missing_since and now - unit.missing_since < DOUBT_SECONDS

    def given_up(self, run: Run) -> None:
        """The row was cut, or failed by itself: that says nothing about the runtime."""
        if run.is_trial and run.place is not None:
            with self._ways.lock:
                run.place.breaker.given_up(run.trial)
                self._ways.wake()

    def _judge(
        self, run: Run, unit: Unit, place: Place, what: Came, reply: Reply, timeout: float, *, is_news: bool
    ) -> Verdict:
        breaker, now = place.breaker, self._clock()
        believed_at = _believed_at(place, what, now)
        others_hang = what is Came.SILENCE and place.others_hang(run, now, timeout)
        lives = what is Came.SILENCE and place.answered_at > run.began_at and not others_hang
        if what is Came.BREAKDOWN or (lives and breaker.is_closed):
            if run.is_trial:
                self._answered(place)
        elif now >= believed_at:
            self._answered(place)
        elif is_news:
            self._failed(run, place, _said(reply), min(reply.retry_after, MAX_PEACE_SECONDS), believed_at)
        if what in NOT_BEGUN and unit.refused_since is None:
            unit.refused_since = run.began_at
        verdict = judge(
            what,
            Evidence(
                now=now,
                began_at=run.began_at,
                timeout=breaker.down_seconds if what is Came.BARRED else timeout,
                is_closed=breaker.is_closed,
                answered_at=place.answered_at,
                others_hang=others_hang,
                is_alone=run.is_alone,
                is_trial=run.is_trial,
                doubts=unit.doubts,
                refused_since=unit.refused_since if unit.refused_since is not None else now,
                is_believed=now >= believed_at,
            ),
        )
        unit.doubts += _is_doubt(what, verdict, counts=breaker.is_closed or run.is_trial)
        unit.refusals = unit.refusals + 1 if what in NOT_BEGUN else 0
        if what not in NOT_BEGUN or not breaker.is_closed:
            unit.refused_since = None  # waiting for a runtime that is down is nobody's time
        return verdict

    def _failed(self, run: Run, place: Place, why: str, not_before: float, believed_at: float) -> None:
        was_closed = place.breaker.is_closed
        was_down = place.breaker.is_down
        place.breaker.failed(why, trial=run.trial, not_before=not_before, believed_at=believed_at)
        if was_closed and not place.breaker.is_closed:
            self._unsaid.append(partial(log.warning, "runtime.failing", runtime=place.facts.name, why=why[:500]))
        if was_closed or run.is_trial or was_down != place.breaker.is_down:
            self._ways.on_trouble()
        if was_down != place.breaker.is_down:
            self._ways.changed()

    def _answered(self, place: Place) -> None:
        was_closed, was_down = place.breaker.is_closed, place.breaker.is_down
        place.breaker.answered()
        if was_down:
            self._ways.changed()
        if not was_closed:
            if place.breaker.is_closed:
                self._unsaid.append(partial(log.info, "runtime.answers_again", runtime=place.facts.name))
            self._ways.on_trouble()
            self._ways.wake()

    def _speak(self) -> None:
        """Log what was to be said while the lock was held: where a log blocks, no row waits for it but this one."""
        with suppress(IndexError):
            while True:
                self._unsaid.popleft()()


def _believed_at(place: Place, what: Came, now: float) -> float:
    """Return when an answer that may be a gateway's is taken for the runtime's; infinity for all else that came."""
    if what not in MAY_BE_A_GATEWAYS:
        place.odd_since = None
        return float("inf")
    if place.odd_since is None:
        place.odd_since = now
    return place.odd_since + place.breaker.down_seconds


def _is_doubt(what: Came, verdict: Verdict, *, counts: bool) -> bool:
    """Whether a run that brought no answer speaks against its row; an odd answer does where it `counts`."""
    return verdict in {Verdict.LAST, Verdict.ALONE} and what not in NOT_BEGUN and (what is not Came.ODD or counts)


def _said(reply: Reply) -> str:
    return reply.error.message if reply.error is not None else f"it answered {reply.status}"
