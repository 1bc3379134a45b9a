"""Rows that wait for the same runtimes, in lots; and which of them goes next, and where to."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator

from app.worker.places import Place
from app.worker.units import Run, Unit


class Route:
    """The runtimes that know a model and endpoint, the dead ones too. There is one object for each choice of them."""

    __slots__ = ("groupers", "places")

    def __init__(self, places: tuple[Place, ...]) -> None:
        self.places = places
        self.groupers = tuple({type(place.executor): place.executor for place in places}.values())
        """One executor of each kind: runtimes of one kind group rows alike."""

    @property
    def is_broken(self) -> bool:
        """No row may start but a trial."""
        return bool(self.places) and not any(place.breaker.is_closed for place in self.places)

    @property
    def is_down(self) -> bool:
        """Rows have waited for it long enough."""
        return bool(self.places) and all(place.breaker.is_down for place in self.places)


Next = tuple[int, Place | None, Hashable]
"""A row that may start: its runtime's load, the runtime (None: nobody serves it), and its lot.

The lot is None for the first of the rows that run alone. A plain tuple, because every row makes one.
"""


class Line:
    """One route's rows. A lot is taken to its end before the next, so that a runtime loads as seldom as can be.

    Each step costs the same however many lots and rows wait.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self._lots: OrderedDict[Hashable, deque[Unit]] = OrderedDict()
        self._alone: deque[Unit] = deque()
        self.count = 0

    def __iter__(self) -> Iterator[Unit]:
        """Give every row, those that are to run alone last."""
        for lot in self._lots.values():
            yield from lot
        yield from self._alone

    def add(self, unit: Unit) -> None:
        """Put a row at the end of its lot."""
        self._lot(unit.lot).append(unit)
        self.count += 1

    def add_first(self, unit: Unit) -> None:
        """Put a row before all others."""
        self._lot(unit.lot).appendleft(unit)
        self._lots.move_to_end(unit.lot, last=False)
        self.count += 1

    def add_alone(self, unit: Unit) -> None:
        """Put a row where it waits to have a runtime for itself."""
        self._alone.append(unit)
        self.count += 1

    def find(self) -> Next | None:
        """Say which row may start now, on the runtime that has least to do; None: none may."""
        if not self.count:
            return None
        if not self.route.places:
            return 0, None, next(iter(self._lots), None)
        if self._alone and (alone := self._place_alone()) is not None:
            return alone.load, alone, None
        if not self._lots:
            return None
        least, found, its_lot = 0, None, None
        for place in self.route.places:
            load = place.load
            if (found is not None and load >= least) or not place.is_open():
                continue
            lot = self._lot_for(place)
            if lot is not None and place.has_room(self._lots[lot][0].row):
                least, found, its_lot = load, place, lot
        return (least, found, its_lot) if found is not None else None

    def waits_for(self, place: Place) -> bool:
        """Tell whether its rows wait until those of another lot have ended on a runtime."""
        if not self._lots or place not in self.route.places or not place.executor.one_group_at_a_time:
            return False
        return place.lot not in self._lots and bool(place.runs) and place.is_open()

    def start(self, found: Next, now: float) -> Run:
        """Start what `find` found."""
        _, place, key = found
        self.count -= 1
        if key is None:
            unit = self._alone.popleft()
        else:
            lot = self._lots[key]
            unit = lot.popleft()
            if not lot:
                del self._lots[key]
        if place is None:
            return Run(unit, None, now)
        return place.start(unit, now, is_alone=key is None)

    def take_more(self, run: Run, most: int, may_join: Callable[[Unit], bool]) -> list[Unit]:
        """Take further rows of the lot and shard of `run`, as far as they stand right behind it."""
        taken: list[Unit] = []
        lot = self._lots.get(run.unit.lot)
        while lot and len(taken) < most and lot[0].shard is run.unit.shard and may_join(lot[0]):
            taken.append(lot.popleft())
        if lot is not None and not lot:
            del self._lots[run.unit.lot]
        self.count -= len(taken)
        return taken

    def discard(self, doomed: Callable[[Unit], bool]) -> int:
        """Throw rows away and count them."""
        before = self.count
        for key, lot in list(self._lots.items()):
            kept = deque(unit for unit in lot if not doomed(unit))
            if kept:
                self._lots[key] = kept
            else:
                del self._lots[key]
        for unit in self._alone:
            if doomed(unit):
                self._release(unit)
        self._alone = deque(unit for unit in self._alone if not doomed(unit))
        self.count = sum(map(len, self._lots.values())) + len(self._alone)
        return before - self.count

    def moved(self) -> Iterator[tuple[Unit, bool]]:
        """Give every row for another line, and whether it is to run alone. This one is of no use afterwards."""
        for unit in self._alone:
            self._release(unit)
        alone = set(self._alone)
        return ((unit, unit in alone) for unit in list(self))

    def _lot(self, key: Hashable) -> deque[Unit]:
        lot = self._lots.get(key)
        if lot is None:
            lot = self._lots[key] = deque()
        return lot

    def _lot_for(self, place: Place) -> Hashable:
        """Name the lot whose rows the runtime should get now; None: it has to finish those of another one first."""
        if place.executor.one_group_at_a_time:
            if place.lot in self._lots:
                return place.lot
            if place.runs:
                return None
        return next(iter(self._lots))

    def _place_alone(self) -> Place | None:
        """Reserve a runtime for the first row that is to run alone; give it once nothing else runs there."""
        unit = self._alone[0]
        places = self.route.places
        place = next((place for place in places if place.reserved_for is unit), None)
        if place is None:
            # A row that may have broken its runtime is not what a broken one is tried with, while there are others.
            free = [p for p in places if p.is_open() and (p.breaker.is_closed or not self._lots)]
            if not free:
                return None
            place = min(free, key=lambda place: place.load)
            place.reserved_for = unit
        if place.runs:
            return None
        if not place.breaker.may_start():
            place.reserved_for = None
            return None
        return place

    def _release(self, unit: Unit) -> None:
        for place in self.route.places:
            if place.reserved_for is unit:
                place.reserved_for = None
