"""A runtime on paper, in front of an AutoSize: slots, a queue, a clock of its own, no thread and no socket."""

import heapq
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.runtimes import RuntimeLoad
from app.worker.sizing import AutoSize

AGAIN_SECONDS = 0.5
OURS, HEARD, THEIRS, AGAIN, GAUGE = "ours", "heard", "theirs", "again", "gauge"


@dataclass
class SimulatedEngine:
    """Works on `slots` rows at once for `latency` seconds each, give or take `spread` of it; the others wait in order.

    `slots_at` changes the slots at these seconds; `others_at` brings rows of somebody else, for good. Beyond
    `queue_bound` waiting rows it refuses, and the row comes again. A `gauged` one tells its load.

    The worker in front of it takes `row_cost` seconds for each answer, one after the other, and about once a second its
    machine stands still, for `stall` seconds on average.
    """

    slots: int
    latency: float
    spread: float = 0.0
    slots_at: Mapping[float, int] = field(default_factory=dict)
    others_at: Mapping[float, int] = field(default_factory=dict)
    queue_bound: int | None = None
    gauged: bool = False
    known_slots: int | None = None
    row_cost: float = 0.0
    stall: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Nothing is in flight."""
        self.now = 0.0
        self.size = AutoSize(lambda: self.now, known_slots=self.known_slots)
        self.sizes = [(0.0, self.size.size)]
        self.ends: list[float] = []
        self.queued: list[tuple[float, int]] = []
        self.refusals = 0
        self._random = random.Random(self.seed)
        self._events: list[tuple[float, int, str, float]] = []
        self._serial = 0
        self._running = 0
        self._waiting: deque[tuple[str, float]] = deque()
        self._ours_waiting = 0
        self._in_flight = 0
        self._busy_until = 0.0
        self._stalls_at = self._random.expovariate(1.0)
        self._changes = sorted(self.slots_at.items())
        self._arrivals = sorted(self.others_at.items())
        if self.gauged:
            self._later(self.size.seconds_between_readings, GAUGE)

    def run(self, *, seconds: float) -> "SimulatedEngine":
        """Give it as many rows as the AutoSize lets, for so long."""
        while self.now < seconds:
            self._top_up()
            self.now, _, what, began_at = heapq.heappop(self._events)
            while self._changes and self._changes[0][0] <= self.now:
                self.slots = self._changes.pop(0)[1]
            while self._arrivals and self._arrivals[0][0] <= self.now:
                for _ in range(self._arrivals.pop(0)[1]):
                    self._send(THEIRS)
            getattr(self, f"_on_{what}")(began_at)
            self._work()
            self.queued.append((self.now, self._ours_waiting))
        return self

    # --- what tests ask

    def rate(self, since: float, until: float) -> float:
        """Rows a second that came out in this time."""
        return sum(since <= end < until for end in self.ends) / (until - since)

    def most_queued(self, since: float, until: float = float("inf")) -> int:
        """The most of our rows that waited at once."""
        return max(rows for at, rows in self.queued if since <= at < until)

    # --- events

    def _on_ours(self, began_at: float) -> None:
        self._running -= 1
        if self.stall and self.now >= self._stalls_at:
            self._busy_until = max(self._busy_until, self.now) + self._random.uniform(0, 2 * self.stall)
            self._stalls_at = self.now + self._random.expovariate(1.0)
        if self.row_cost or self.now < self._busy_until:
            self._busy_until = max(self._busy_until, self.now) + self.row_cost
            self._later(self._busy_until - self.now, HEARD, began_at)
        else:
            self._on_heard(began_at)

    def _on_heard(self, began_at: float) -> None:
        self._in_flight -= 1
        self.ends.append(self.now)
        self._resized(self.size.row_done(began_at))

    def _on_theirs(self, _began_at: float) -> None:
        self._running -= 1
        self._wait(THEIRS)

    def _on_again(self, _began_at: float) -> None:
        self._send(OURS)

    def _on_gauge(self, _began_at: float) -> None:
        waiting = len(self._waiting)
        self._resized(self.size.loaded(RuntimeLoad(self._running, waiting), self._in_flight))
        self._later(self.size.seconds_between_readings, GAUGE)

    def _resized(self, size: int | None) -> None:
        if size is not None:
            self.sizes.append((self.now, size))

    # --- how it works

    def _top_up(self) -> None:
        while self._in_flight < self.size.size:
            self._in_flight += 1
            self._send(OURS)

    def _send(self, row: str) -> None:
        self._wait(row)
        self._work()
        if row == OURS and self.queue_bound is not None and len(self._waiting) > self.queue_bound:
            self._waiting.pop()
            self._ours_waiting -= 1
            self.refusals += 1
            self.size.refused()
            self._later(AGAIN_SECONDS * self._random.uniform(0.5, 1.0), AGAIN)

    def _work(self) -> None:
        while self._waiting and self._running < self.slots:
            self._running += 1
            seconds = self.latency * self._random.uniform(1 - self.spread, 1 + self.spread)
            row, began_at = self._waiting.popleft()
            self._ours_waiting -= row == OURS
            self._later(seconds, row, began_at)

    def _wait(self, row: str) -> None:
        self._waiting.append((row, self.now))
        self._ours_waiting += row == OURS

    def _later(self, seconds: float, what: str, began_at: float = 0.0) -> None:
        self._serial += 1
        heapq.heappush(self._events, (self.now + seconds, self._serial, what, began_at))
