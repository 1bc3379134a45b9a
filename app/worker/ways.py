"""Where rows may go, and the batches whose rows wait to go there, the oldest first."""

import bisect
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from app.domain.rows import Row
from app.worker.lines import Route
from app.worker.permits import Age
from app.worker.places import Place
from app.worker.routing import fitting, knowing

_MAX_ROUTES = 10_000


class Waiting(Protocol):
    """Rows of one batch that wait for a place. Called with the lock held."""

    age: Age

    def wake(self) -> None:
        """Look whether a row may start."""

    def wants(self, place: Place) -> bool:
        """Tell whether a row waits for nothing but its turn there."""

    def reroute(self) -> None:
        """The runtimes or their models changed."""


class Ways:
    """One a worker. `lock` guards it, the places and all queues; whoever calls holds it, but for `add`."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.lock = threading.Lock()
        self._places = places
        self._routes: dict[Hashable, Route] = {}
        self._ways: dict[tuple[Place, ...], Route] = {}
        self._queues: list[Waiting] = []
        self.on_trouble: Callable[[], None] = lambda: None
        """Called when a breaker or a pause begins or ends: it must only wake somebody."""

    def add(self, queue: Waiting) -> None:
        """Tell `queue` from now on."""
        with self.lock:
            bisect.insort(self._queues, queue, key=lambda queue: queue.age)

    def remove(self, queue: Waiting) -> None:
        """Tell it no more."""
        if queue in self._queues:
            self._queues.remove(queue)

    def is_for_older(self, queue: Waiting, place: Place) -> bool:
        """Tell whether a place is for an older batch's row than those of `queue`."""
        for other in self._queues:
            if other is queue:
                return False
            if other.wants(place):
                return True
        return False

    def wake(self) -> None:
        """Have every queue look whether a row may start."""
        for queue in self._queues:
            queue.wake()

    def route(self, row: Row) -> Route:
        """Give the way of rows like this one as the runtimes are now; the same one for all rows that go it."""
        kind = (row.model, row.endpoint, row.parameters, row.may_drop)
        route = self._routes.get(kind)
        if route is None:
            places = fitting(row, knowing(self._places, row))
            route = self._ways.get(places)
            if route is None:
                route = self._ways[places] = Route(places)
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[kind] = route
        return route

    def changed(self) -> None:
        """Sort all rows anew: the runtimes or their models changed."""
        self._routes.clear()
        for queue in self._queues:
            queue.reroute()
