"""The rows of one batch on this worker that are not started yet, and the places they go to.

Lanes take from it, the share fills it. Rows wait in lines, one for each choice of runtimes: a line whose runtimes are
full or broken holds up no other, and nobody keeps a permit while a row waits for a runtime.
"""

import threading
from collections.abc import Callable, Iterable

from app.worker.lines import Line, Next, Route
from app.worker.pauses import Pauses
from app.worker.permits import Age
from app.worker.places import Place
from app.worker.runtimes import Runtimes
from app.worker.sorting import sort
from app.worker.units import Run, Unit
from app.worker.verdicts import Verdict


class RowQueue:
    """A queue that may be held, for one reason or several, and that tells when it runs low.

    Where a runtime has room for one row, the older batch's goes first (DESIGN 9).
    """

    def __init__(self, runtimes: Runtimes, age: Age = (0, "")) -> None:
        self.age = age
        self._runtimes = runtimes
        self._ways = runtimes.ways
        self._lock = runtimes.lock
        self._filled = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._nudged = threading.Condition(self._lock)
        self._lines: dict[Route, Line] = {}
        self._pauses = Pauses()
        self._count = 0
        self._waiting = 0
        self._running = 0
        self._bound: int | None = None
        self._holds: set[str] = set()
        self._closed = False
        self._low = 0
        self._ways.add(self)

    def __len__(self) -> int:
        """Count what waits, for whatever."""
        return self._count

    @property
    def ready(self) -> int:
        """Count what waits, but for the rows that can go to broken runtimes only."""
        with self._lock:
            return self._count - sum(line.count for line in self._lines.values() if line.route.is_broken)

    # --- the share

    def put(self, units: Iterable[Unit]) -> None:
        """Add rows. After `close` they are thrown away."""
        # Outside of the lock: what an executor reads in a row to group it may take its time.
        grouped = [(unit, self._sorted(unit)) for unit in units]
        with self._lock:
            if self._closed:
                return
            for unit, route in grouped:
                now = self._ways.route(unit.row)
                if now is not route:
                    sort(unit, now)
                self._line(now).add(unit)
            self._count += len(grouped)
            self.wake()

    def again(self, unit: Unit, verdict: Verdict, *, not_before: float = 0.0) -> None:
        """Take back a row that is to run again, before its place is given back."""
        with self._lock:
            if self._closed:
                return
            self._count += 1
            if verdict is Verdict.LATER:
                self._pauses.add(unit, self._runtimes.clock(), not_before=not_before)
                self._ways.on_trouble()
                return
            line = self._line_of(unit)
            if verdict is Verdict.ALONE:
                line.add_alone(unit)
            elif verdict is Verdict.LAST:
                line.add(unit)
            else:
                line.add_first(unit)

    def wait_low(self, low: int, timeout: float) -> None:
        """Wait until at most `low` rows are left, a nudge, or `timeout` seconds."""
        with self._lock:
            self._low = low
            if self._count > low and not self._closed:
                self._drained.wait(timeout)

    def pause(self, timeout: float) -> None:
        """Wait for a nudge or `timeout` seconds, whatever rows are started meanwhile."""
        with self._lock:
            if not self._closed:
                self._nudged.wait(timeout)

    def nudge(self) -> None:
        """Wake the share: it is to look again."""
        with self._lock:
            self._nudge()

    def hold(self, reason: str) -> None:
        """Start no row until each reason given was taken back."""
        with self._lock:
            self._holds.add(reason)
            self._ways.wake()  # a runtime may have been left to these rows

    def let_go(self, reason: str) -> None:
        """Take a reason back."""
        with self._lock:
            self._holds.discard(reason)
            self.wake()

    def bound(self, most: int | None) -> None:
        """Have at most so many rows run at once, for as long as it is to be seen what comes of them; None: no bound."""
        with self._lock:
            self._bound = most
            self._ways.wake()  # others too: no row of a batch that is shut keeps them waiting
            self._nudge()

    @property
    def is_shut(self) -> bool:
        """Whether no row may start, whatever ends."""
        return self._bound == 0

    def discard(self, doomed: Callable[[Unit], bool]) -> None:
        """Throw rows away."""
        with self._lock:
            gone = sum(line.discard(doomed) for line in self._lines.values())
            self._count -= gone + self._pauses.discard(doomed)
            self._nudge()
            self._ways.wake()  # a runtime may have been kept free for one of them

    def stranded(self) -> list[Unit]:
        """Give the rows that wait for runtimes that are down, or run there."""
        with self._lock:
            down = [line for line in self._lines.values() if line.route.is_down]
            waiting = [unit for line in down for unit in line]
            places = [place for place in self._runtimes.places if place.breaker.is_down]
            return waiting + [run.unit for place in places for run in place.runs]

    def close(self) -> None:
        """End: lanes go home."""
        with self._lock:
            self._closed = True
            for line in self._lines.values():
                line.discard(lambda _unit: True)
            self._lines.clear()
            self._pauses.clear()
            self._count = 0
            self._ways.remove(self)
            self._ways.wake()
            self._filled.notify_all()
            self._nudge()

    # --- lanes

    def wait(self) -> bool:
        """Wait until a row may start. False once the queue is closed."""
        with self._lock:
            while not self._closed and self._find_ours() is None:
                self._waiting += 1
                try:
                    self._filled.wait()
                finally:
                    self._waiting -= 1
            return not self._closed

    def take(self) -> Run | None:
        """Start a row now, or None: none may start. Whoever takes gives back, by `next` or `done`."""
        with self._lock:
            return self._take()

    def next(self, run: Run) -> Run | None:
        """Give a place back and start another row."""
        with self._lock:
            self._free(run)
            following = self._take()
            if following is None or following.place is not run.place:
                self._ways.wake()
            return following

    def done(self, run: Run) -> None:
        """Give a place back."""
        with self._lock:
            self._free(run)
            self._ways.wake()

    def take_more(self, run: Run, most: int, may_join: Callable[[Unit], bool]) -> list[Unit]:
        """Start up to `most` further rows of the same lot and shard on the place of `run`, to share its request.

        Each of them is to be begun, and kept or taken back (`again`), like the first; the place is given back once.
        """
        with self._lock:
            line = self._lines.get(self._ways.route(run.unit.row))
            if line is None or self._holds or run.is_alone or run.is_trial:
                return []
            room = most if self._bound is None else max(0, min(most, self._bound - self._running))
            more = line.take_more(run, room, may_join)
            run.taken += len(more)
            self._taken(len(more))
            self._ways.wake()
            return more

    # --- what the runtimes tell, with the lock held

    def wake(self) -> None:
        """Wake a lane if a row may start; that lane's `take` wakes the next one."""
        if self._waiting and self._find_ours() is not None:
            self._filled.notify()

    def wants(self, place: Place) -> bool:
        """Tell whether a row waits for nothing but its turn on a runtime."""
        if not self._may_start():
            return False
        found = self._find()
        return (found is not None and found[1][1] is place) or any(
            line.waits_for(place) for line in self._lines.values()
        )

    def reroute(self) -> None:
        """Put every row into the line of the runtimes that know its model now."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for unit, is_alone in line.moved():
                fresh = self._line_of(unit)
                if fresh.route.groupers != line.route.groupers:  # sorting reads the row, and the lock is held
                    sort(unit, fresh.route)
                (fresh.add_alone if is_alone else fresh.add)(unit)
        self.wake()

    def wake_due(self, now: float) -> None:
        """Bring back the rows whose pause is over. Takes the lock."""
        with self._lock:
            for unit in self._pauses.over(now):
                self._line_of(unit).add_first(unit)
            self.wake()

    @property
    def next_due(self) -> float:
        """When the next such row comes back; infinity for never."""
        with self._lock:
            return self._pauses.next_due

    def _take(self) -> Run | None:
        found = self._find_ours()
        if found is None:
            return None
        line, following = found
        run = line.start(following, self._runtimes.clock())
        self._taken(1)
        self._ways.wake()  # others too: what was left to this row's batch may not be wanted by it any more
        return run

    def _taken(self, count: int) -> None:
        self._count -= count
        self._running += count
        if self._count <= self._low:
            self._drained.notify_all()

    def _free(self, run: Run) -> None:
        self._running -= run.taken
        if run.place is not None:
            run.place.free(run)

    def _may_start(self) -> bool:
        """Tell whether rows may start at all; while they may not, other batches need not wait for them."""
        return not self._holds and (self._bound is None or self._running < self._bound)

    def _find_ours(self) -> tuple[Line, Next] | None:
        """Find a row that may start, and that no older batch goes before."""
        found = self._find()
        place = found[1][1] if found is not None else None
        return None if place is not None and self._ways.is_for_older(self, place) else found

    def _find(self) -> tuple[Line, Next] | None:
        if not self._may_start():
            return None
        best, its_line = None, None
        for line in self._lines.values():
            found = line.find()
            # By its load, which comes first in it.
            if found is not None and (best is None or found[0] < best[0]):
                best, its_line = found, line
        return (its_line, best) if its_line is not None and best is not None else None

    def _nudge(self) -> None:
        self._drained.notify_all()
        self._nudged.notify_all()

    def _line_of(self, unit: Unit) -> Line:
        return self._line(self._ways.route(unit.row))

    def _line(self, route: Route) -> Line:
        line = self._lines.get(route)
        if line is None:
            line = self._lines[route] = Line(route)
        return line

    def _sorted(self, unit: Unit) -> Route:
        with self._lock:
            route = self._ways.route(unit.row)
        sort(unit, route)
        return route
