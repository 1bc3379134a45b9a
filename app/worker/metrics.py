"""A GPU worker's page of metrics: what it is at the moment of a scrape, read without waiting for anything."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from app.domain import metrics
from app.domain.metrics import Metric
from app.domain.workers import Phase
from app.schemas.workers import Welcome
from app.worker.introduction import own_version
from app.worker.opening import Opened
from app.worker.places import Place
from app.worker.shares import Shares
from config.metrics import family, open_port
from config.settings import WorkerSettings

BREAKER_STATES = ("closed", "open", "down", "dead")
Family = GaugeMetricFamily | CounterMetricFamily
Values = Mapping[tuple[str, ...], float]


def show(
    settings: WorkerSettings, own: Opened, shares: Shares, welcome: Welcome, phase: Callable[[], Phase]
) -> Callable[[], None]:
    """Answer scrapes where the settings say, if they do; gives what ends it."""
    if settings.metrics_port is None:
        return lambda: None
    own.counters.registry.register(WorkerCollector(own, shares, welcome, phase))
    return open_port(own.counters.registry, settings.metrics_host, settings.metrics_port)


class WorkerCollector(Collector):
    """What the registry of a worker asks at each scrape."""

    def __init__(self, own: Opened, shares: Shares, welcome: Welcome, phase: Callable[[], Phase]) -> None:
        self._own = own
        self._shares = shares
        self._welcome = welcome
        self._phase = phase

    def collect(self) -> Iterator[Family]:
        """Look."""
        own, shares, held = self._own, self._shares.all(), self._shares.held
        yield _family(metrics.WORKER_INFO, {(self._welcome.name, self._welcome.pool, own_version()): 1})
        yield _family(metrics.WORKER_PHASE, {(self._phase().value,): 1})
        yield _one(metrics.WORKER_IN_FLIGHT, own.permits.in_use)
        yield _one(metrics.WORKER_LIMIT, own.permits.limit)
        yield _one(metrics.WORKER_WAITING, sum(share.rows_waiting for share in shares))
        yield _one(metrics.WORKER_BATCHES, len(shares))
        yield _one(metrics.WORKER_LEASES, len(held))
        yield _one(metrics.WORKER_LEASE_DOUBT, held.longest_unconfirmed())
        yield _one(metrics.WORKER_SILENCE, own.plane.silent_seconds)
        yield _one(metrics.WORKER_SPOOLED, own.spool.count())
        yield _one(metrics.WORKER_SPOOL_ERROR, own.spool.error is not None)
        yield from _runtimes(own.runtimes.places)
        yield from self._gpus()

    def _gpus(self) -> Iterator[Family]:
        sample = self._own.sampler.latest
        used: dict[tuple[str, ...], float] = {}
        total: dict[tuple[str, ...], float] = {}
        busy: dict[tuple[str, ...], float] = {}
        for number, gpu in enumerate(sample.gpus if sample is not None else ()):
            key = (str(number), gpu.name)
            if gpu.memory_used is not None:
                used[key] = gpu.memory_used
            if gpu.memory_total is not None:
                total[key] = gpu.memory_total
            if gpu.utilization is not None:
                busy[key] = gpu.utilization / 100
        yield _family(metrics.WORKER_GPU_USED, used)
        yield _family(metrics.WORKER_GPU_TOTAL, total)
        yield _family(metrics.WORKER_GPU_BUSY, busy)


def _runtimes(places: list[Place]) -> Iterator[Family]:
    states: dict[tuple[str, ...], float] = {}
    rows: dict[tuple[str, ...], float] = {}
    for place in places:
        name, state = place.facts.name, _state(place)
        states |= {(name, known): float(known == state) for known in BREAKER_STATES}
        rows[name,] = len(place.runs)
    yield _family(metrics.WORKER_RUNTIME, states)
    yield _family(metrics.WORKER_RUNTIME_ROWS, rows)


def _state(place: Place) -> str:
    if place.breaker.is_down:
        return "down"
    if not place.facts.alive:
        return "dead"
    return "closed" if place.breaker.is_closed else "open"


def _one(metric: Metric, value: float) -> Family:
    return _family(metric, {(): value})


def _family(metric: Metric, values: Values) -> Family:
    made = family(metric)
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made
