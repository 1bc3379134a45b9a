"""A GPU worker's page of metrics: what it is at the moment of a scrape, read without waiting for anything."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from prometheus_client.registry import Collector

from app.domain import metrics
from app.domain.workers import Phase
from app.schemas.workers import Welcome
from app.worker.introduction import own_version
from app.worker.opening import Opened
from app.worker.places import Place
from app.worker.shares import Shares
from config.metrics import Family, Labels, family, figure, open_port
from config.settings import WorkerSettings

BREAKER_STATES = ("closed", "open", "down", "dead")


def show(settings: WorkerSettings, own: Opened, phase: Callable[[], Phase], closing: ExitStack) -> "WorkerCollector":
    """Answer scrapes where the settings say, if they do, until `closing` ends.

    Before the hello, so that a worker that nobody answers can be looked at, too (BO-03).
    """
    found = WorkerCollector(own, phase)
    if settings.metrics_port is not None:
        own.counters.registry.register(found)
        closing.callback(open_port(own.counters.registry, settings.metrics_host, settings.metrics_port))
    return found


class WorkerCollector(Collector):
    """What the registry of a worker asks at each scrape."""

    def __init__(self, own: Opened, phase: Callable[[], Phase]) -> None:
        self._own = own
        self._phase = phase
        self._known: tuple[Welcome, Shares] | None = None

    def welcomed(self, welcome: Welcome, shares: Shares) -> None:
        """Show who this is and what it holds, too: its hello was taken."""
        self._known = welcome, shares

    def collect(self) -> Iterator[Family]:
        """Look."""
        own = self._own
        if self._known is not None:
            yield from _held(*self._known)
            # Not before: a container's health is this figure, and nobody is well who was not welcomed.
            yield figure(metrics.WORKER_SILENCE, own.plane.silent_seconds)
        yield family(metrics.WORKER_PHASE, {(self._phase().value,): 1})
        yield figure(metrics.WORKER_IN_FLIGHT, own.permits.in_use)
        yield figure(metrics.WORKER_LIMIT, own.permits.limit)
        yield figure(metrics.WORKER_SPOOLED, own.spool.count())
        yield figure(metrics.WORKER_SPOOL_ERROR, own.spool.error is not None)
        yield from _runtimes(own.runtimes.places)
        yield from self._gpus()

    def _gpus(self) -> Iterator[Family]:
        sample = self._own.sampler.latest
        used: dict[Labels, float] = {}
        total: dict[Labels, float] = {}
        busy: dict[Labels, float] = {}
        for number, gpu in enumerate(sample.gpus if sample is not None else ()):
            key = (str(number), gpu.name)
            if gpu.memory_used is not None:
                used[key] = gpu.memory_used
            if gpu.memory_total is not None:
                total[key] = gpu.memory_total
            if gpu.utilization is not None:
                busy[key] = gpu.utilization / 100
        yield family(metrics.WORKER_GPU_USED, used)
        yield family(metrics.WORKER_GPU_TOTAL, total)
        yield family(metrics.WORKER_GPU_BUSY, busy)


def _held(welcome: Welcome, all_shares: Shares) -> Iterator[Family]:
    shares, held = all_shares.all(), all_shares.held
    yield family(metrics.WORKER_INFO, {(welcome.name, welcome.pool, own_version()): 1})
    yield figure(metrics.WORKER_WAITING, sum(share.rows_waiting for share in shares))
    yield figure(metrics.WORKER_BATCHES, len(shares))
    yield figure(metrics.WORKER_LEASES, len(held))
    yield figure(metrics.WORKER_LEASE_DOUBT, held.longest_unconfirmed())


def _runtimes(places: list[Place]) -> Iterator[Family]:
    states: dict[Labels, float] = {}
    rows: dict[Labels, float] = {}
    for place in places:
        name, state = place.facts.name, _state(place)
        states |= {(name, known): float(known == state) for known in BREAKER_STATES}
        rows[name,] = len(place.runs)
    yield family(metrics.WORKER_RUNTIME, states)
    yield family(metrics.WORKER_RUNTIME_ROWS, rows)


def _state(place: Place) -> str:
    if place.breaker.is_down:
        return "down"
    if not place.facts.alive:
        return "dead"
    return "closed" if place.breaker.is_closed else "open"
