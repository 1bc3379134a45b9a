"""`max_concurrent_prompts = "auto"`: find the number in flight that the runtimes make use of, and follow it (R-17).

RISE    the number doubles while a window's rate grows by 15 % or more (PERFORMANCE 1), or while rows take hardly longer
FALL    it shrinks as long as the rate holds, down to an eighth more than the least that holds it
REST    it stays; a rate that dropped leads to FALL, some quiet windows to PROBE and to FALL by turns
PROBE   a quarter more for one window: if that pays the runtimes have grown, RISE; else back to REST, for longer

Where the runtimes have gauges, these say sooner and better that rows wait, or that none does. A refusal (429, 503)
takes a quarter off and leads to FALL. The rate alone decides where there is neither.
"""

import math
import threading
from enum import StrEnum

from app.domain.runtimes import RuntimeLoad
from app.worker.clock import Clock
from app.worker.durations import Durations
from app.worker.engine_gauges import HEADROOM, EngineGauges
from app.worker.rate_window import RateWindow
from app.worker.throughput import Throughput

START = 8
CEILING = 1024
PAYS = 1.15
"""Twice as many in flight are worth it when they bring so much more."""
PAYS_CLEARLY = 1.5
"""Less is measured once more, over more rows: chance alone brings some 15 % to a few rows of different lengths."""
PAYS_PROVEN = 1.75
"""Where the half was only looked at, for one row's time: nearly a doubling."""
FALLS_TO = 0.7
HOLDS = 0.88
"""The rate holds when 0.7 of the number brings so much of it. Both bound the queue at rest: half an engine-full."""
HOLDS_ON = 0.93
"""Less of it than this, and 0.7 of the number cannot hold it once more: each prompt less costs more than the last."""
CLEARLY_LESS = 0.7
"""Of the rate that less is to hold: it does not, and each further row of the trial costs a part of its time."""
PROBES_WITH = 1.25
PROBE_PAYS = 1.17
PROBE_PAYS_A_LITTLE = 1.1
"""Worth staying at, and no reason to look for far more."""
DROPPED = 0.7
RISE_ROWS = 16
"""Of a window at least: where the rate should double, chance does not hide it."""
CAREFUL_ROWS = 40
"""Of a window at least where less than a doubling is at stake."""
LEAST_WORTH_A_TRIAL = 2
"""Two in flight keep one slot busy: with one less there is nothing to win."""
SEARCH_ROUNDS = 2
REST_ROUNDS = 4
SEARCH_SECONDS = 0.3
REST_SECONDS = 0.6
"""Of a window at least. The machine that the worker runs on stalls, too, for some tenths of a second."""
READ_SECONDS = 1.0
LEAST_READ_SECONDS = 0.25
"""Between two readings of the gauges."""
QUICK_SECONDS = 0.5
EASE = 1 / 8
"""The part that the newest row has in how long rows take."""
FIRST_PATIENCE = 4
LONGEST_PATIENCE = 16
"""Windows at rest between two probes. They cost nothing where the runtimes are full, but they lengthen the queue."""


class Phase(StrEnum):
    """What the last windows were for."""

    RISE = "rise"
    FALL = "fall"
    REST = "rest"
    PROBE = "probe"


def start_size(known_slots: int | None) -> int:
    """Where to begin: at what the runtimes say they work on at once, plus an eighth, else at eight."""
    return min(CEILING, math.ceil(known_slots * HEADROOM)) if known_slots else START


class AutoSize:
    """Told of each answer, refusal and reading, says when the number in flight should change. Thread-safe."""

    def __init__(self, clock: Clock, *, known_slots: int | None = None, ceiling: int = CEILING) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._most = ceiling
        self._window = RateWindow(clock)
        self._durations = Durations(clock)
        self._gauges = EngineGauges()
        self.restart(known_slots)

    def restart(self, known_slots: int | None) -> int:
        """Begin anew, as when the runtimes changed; known slots need no search, and bound it. Gives the size."""
        with self._lock:
            start = start_size(known_slots)
            self._ceiling = min(start, self._most) if known_slots else self._most
            self._durations.forget()
            self._row_seconds = self._least_row_seconds = READ_SECONDS
            self._patience = FIRST_PATIENCE
            self._base: Throughput | None = None
            self._before: Throughput | None = None
            self._refused = self._was_full = self._tried_more = False
            self._is_guess = self._rises_if_less_is_less = self._looked_twice = self._careful = False
            self._least = self._fallback = self.size = start
            self._phase = Phase.REST if known_slots else Phase.RISE
            self._go_to(start)
            return self.size

    def look_again(self) -> None:
        """The runtimes may have become others, which tell nothing of it: the next window at rest ends in a probe."""
        with self._lock:
            self._patience = FIRST_PATIENCE
            self._quiet = FIRST_PATIENCE
            self._tried_more = False
            self._window.reopen()

    def row_done(self, began_at: float) -> int | None:
        """Count an answered row that began at this time of the clock. Gives a new size, or None."""
        with self._lock:
            before = self.size
            self._row_seconds += EASE * (min(self._clock() - began_at, READ_SECONDS) - self._row_seconds)
            self._least_row_seconds = min(self._least_row_seconds, self._row_seconds)
            if self._refused:
                self._refused = False
                if self._grew or not self._window.settling:  # else it was of the rows that were sent before
                    self._give_way()
            elif (found := self._window.count(began_at)) is not None:
                self._judge(found)
            elif self._phase is Phase.RISE and (pace := self._durations.count(began_at)) is not None:
                self._judge_pace(pace)
            return self.size if self.size != before else None

    def refused(self) -> None:
        """A runtime would not take a row now (429, 503). It counts when another row is answered: not while it loads."""
        self._refused = True

    def starved(self) -> None:
        """Rows ran out: what was measured so far says nothing about the runtimes."""
        with self._lock:
            self._window.reopen()
            self._durations.reopen()
            self._gauges.forget()

    @property
    def seconds_between_readings(self) -> float:
        """How often the gauges are worth reading: no more than once in a row's time, and seldom once all is found."""
        if self._phase is Phase.REST and self._gauges.agree:
            return READ_SECONDS
        return min(READ_SECONDS, max(LEAST_READ_SECONDS, self._least_row_seconds))

    def loaded(self, load: RuntimeLoad, in_flight: int) -> int | None:
        """Take a reading of the runtimes' gauges. Gives a new size, or None."""
        with self._lock:
            before = self.size
            self._gauges.read(load, in_flight)
            # Quick rows show within two readings whether they wait; slow ones may wait for their prompts alone.
            quick = self._least_row_seconds <= QUICK_SECONDS
            fair = self._gauges.fair_size(soon=quick and self._phase is Phase.RISE)
            if fair is not None and fair < self.size:
                self._rest_at(fair, None)
            elif self._gauges.takes_all(self.size):
                self._use_room()
            else:
                self._was_full = self._was_full or self._gauges.queueing
            return self.size if self.size != before else None

    def _use_room(self) -> None:
        """Grow before a window of slow rows is full. At rest only when rows waited before: else the rate has judged."""
        if self._phase is Phase.RISE:
            self._go_to(2 * self.size)
        elif self._phase is Phase.REST and self._was_full:
            self._probe(None)

    def _judge(self, found: Throughput) -> None:
        if self._phase is Phase.RISE:
            self._judge_rise(found)
        elif self._phase is Phase.FALL:
            self._judge_fall(found)
        elif self._phase is Phase.PROBE:
            self._judge_probe(found)
        else:
            self._judge_rest(found)

    def _judge_pace(self, pace: float) -> None:
        """Go on where rows take hardly longer than with half as many: that is clear long before a rate is counted.

        The first number has none to be compared with; there rows must take equally long, as if none had waited.
        """
        pays = self._durations.are_equal if self._base is None else pace >= PAYS_CLEARLY * self._base.at_most
        if pays and self._durations.hardly_grew and self.size < self._ceiling and not self._gauges.may_be_backlog:
            self._rise(Throughput(pace, pace))
            self._is_guess = True

    def _judge_rise(self, found: Throughput) -> None:
        growth = math.inf if self._base is None else found.sure_growth(self._base)
        if self._gauges.backlog or (self._gauges.full and self._base is not None):
            self._fall(self.size, found, fallback=self.size)
        elif growth < PAYS_PROVEN and self._gauges.none_waits and not self._looked_twice:
            self._looked_twice = True  # rather this machine stood still
            self._open_window()
        elif PAYS <= growth < PAYS_CLEARLY and not self._careful:
            self._careful = True
            self._open_window()
        elif self._base is not None and growth < PAYS and not self._is_guess:
            self._fall(self._least, self._base, fallback=math.ceil(self._least * HEADROOM))
        elif self.size >= self._ceiling or (self._is_guess and growth < PAYS_PROVEN):
            # What the rows' times promised of fewer was a first look. A trial of less shows what it was worth.
            self._fall(self.size, found, fallback=self.size)
            self._rises_if_less_is_less = growth >= PAYS
        else:
            self._rise(found)

    def _judge_fall(self, found: Throughput) -> None:
        if self._base is None or self._gauges.backlog:
            # After a refusal nothing is known yet, and where so many wait less is enough, whatever was counted before.
            self._fall(self.size, found, fallback=self.size)
        elif found.counted >= HOLDS * self._base.counted and not found.times_tell_of_less(self._base):
            enough = min(self._fallback, math.ceil(self.size * HEADROOM))
            if found.counted < HOLDS_ON * self._base.counted and not self._rises_if_less_is_less:
                self._rest_at(enough, self._base)
            else:
                self._fall(self.size, self._base, fallback=enough)
        elif found.growth_at_most(self._base) >= HOLDS and not self._looked_twice:
            self._looked_twice = True
            self._open_window()
        elif self._rises_if_less_is_less and self._fallback < self._ceiling and not self._gauges.full:
            self.size = self._fallback
            self._rise(self._base)
        else:
            self._rest_at(self._fallback, self._base)

    def _judge_rest(self, found: Throughput) -> None:
        if self._base is not None and found.growth_at_most(self._base) < DROPPED:
            self._patience = FIRST_PATIENCE
            self._phase, self._base = Phase.FALL, None  # a part of this window may be older: once more, then less
            self._go_to(self.size)
            return
        self._base = found if self._base is None else self._base.eased_towards(found)
        self._quiet += 1
        if self._quiet < self._patience:
            self._open_window()
            return
        self._patience = min(LONGEST_PATIENCE, 2 * self._patience)
        if self._tried_more or self._gauges.queueing or self.size >= self._ceiling:
            self._tried_more = False
            self._try_less(self._base)
        else:
            self._tried_more = True
            self._probe(found)

    def _try_less(self, found: Throughput) -> None:
        if self.size > LEAST_WORTH_A_TRIAL:
            self._fall(self.size, found, fallback=self.size)
        else:
            self._rest_at(self.size, found)

    def _judge_probe(self, found: Throughput) -> None:
        growth = math.inf if self._before is None else found.sure_growth(self._before)
        if self._gauges.full:
            self._rest_at(self._fallback, self._base)
        elif growth >= PROBE_PAYS:
            self._patience = FIRST_PATIENCE
            self._rise(found)
        elif growth >= PROBE_PAYS_A_LITTLE:
            self._rest_at(self.size, found)
        else:
            self._rest_at(self._fallback, self._base)

    def _give_way(self) -> None:
        if self._phase is Phase.PROBE:
            self._rest_at(self._fallback, self._base)
        elif self._phase is Phase.RISE and self._least < self.size:
            self._rest_at(self._least, self._base)
        else:
            self._phase, self._base = Phase.FALL, None
            self._go_to(self.size * 3 // 4)

    def _rise(self, found: Throughput) -> None:
        self._phase, self._least, self._base, self._is_guess = Phase.RISE, self.size, found, False
        self._go_to(2 * self.size)

    def _fall(self, held: int, base: Throughput, *, fallback: int) -> None:
        """Try whether less than `held`, which brings `base` rows a second, brings as much. If not: `fallback`."""
        self._phase, self._base, self._fallback = Phase.FALL, base, fallback
        self._rises_if_less_is_less = False
        lower = int(held * FALLS_TO)
        if lower:
            self._go_to(lower)
        else:
            self._rest_at(fallback, base)

    def _probe(self, before: Throughput | None) -> None:
        """Try a quarter more. Without a rate to compare with, the gauges said that there is room."""
        self._phase, self._before, self._fallback, self._was_full = Phase.PROBE, before or self._base, self.size, False
        self._go_to(max(self.size + 1, math.ceil(self.size * PROBES_WITH)))

    def _rest_at(self, size: int, base: Throughput | None) -> None:
        self._phase, self._base = Phase.REST, base
        self._go_to(size)

    def _go_to(self, size: int) -> None:
        before = self.size
        self.size = max(1, min(size, self._ceiling))
        self._grew = self.size > before
        self._quiet = 0
        self._looked_twice = False
        self._careful = self._phase is not Phase.RISE
        self._durations.open(self.size)
        self._open_window()
        self._gauges.forget()

    def _open_window(self) -> None:
        self._window.open(
            in_flight=self.size,
            rounds=REST_ROUNDS if self._phase is Phase.REST or self._looked_twice else SEARCH_ROUNDS,
            least_seconds=REST_SECONDS if self._phase is Phase.REST else SEARCH_SECONDS,
            least_rows=CAREFUL_ROWS if self._careful else RISE_ROWS,
            clearly_less=CLEARLY_LESS * self._base.counted if self._phase is Phase.FALL and self._base else 0.0,
            clear_rows=RISE_ROWS,
            clearly=math.inf if self._careful else PAYS_CLEARLY * (self._base.counted if self._base else 0.0),
        )
