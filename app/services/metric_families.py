"""Figures of the database as Prometheus' families, made anew at each scrape: what is gone is shown no more."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client.registry import Collector

from app.db.metrics import HostRow
from app.domain import metrics
from app.domain.batches import BatchState
from app.domain.metrics import Metric
from app.domain.workers import Transport
from app.schemas.workers import GpuSample
from app.services.context import Yard
from app.services.control import QUEUE
from app.services.eligibility import rungs, told_sample
from app.services.metrics import Figures, Reading
from app.services.readiness import is_stand_in, unfinished_seconds
from app.services.worker_views import state_seen
from config.metrics import Family, Labels, family, figure


class ServiceCollector(Collector):
    """What the registry of an API process asks at each scrape."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._reading = Reading(yard)

    def collect(self) -> Iterator[Family]:
        """Read, or say that the database does not answer."""
        if (free := self._yard.blobs.free_bytes()) is not None:
            yield figure(metrics.BLOBS_FREE, free)
        figures = self._reading.figures()
        yield figure(metrics.DATABASE_UP, float(figures is not None))
        if figures is None:
            return
        yield figure(metrics.FIGURES_SECONDS, figures.seconds)
        yield figure(metrics.FIGURES_CUT, float(figures.cut))
        yield family(metrics.EVENTS, {(type_,): count for type_, count in self._reading.events.items()})
        yield from _queues(figures)
        count, oldest = figures.webhooks
        yield figure(metrics.WEBHOOKS_WAITING, count)
        yield figure(metrics.WEBHOOK_WAIT, _age(figures, oldest))
        yield from _leases(figures)
        yield from _sweeps(figures)
        yield self._workers(figures)
        yield from _hosts([row for row in figures.hosts if self._is_heard(row, figures)])

    def _workers(self, figures: Figures) -> Family:
        counts: dict[Labels, float] = {}
        for row in figures.workers:
            if row.transport != Transport.CONTROL:
                self._yard.counters.expect(row.pool)
            timing = rungs(self._yard.timing, row.timing)
            key = (row.pool, state_seen(row, figures.heard.silence(row), timing))
            counts[key] = counts.get(key, 0) + row.workers
        return family(metrics.WORKERS, counts)

    def _is_heard(self, row: HostRow, figures: Figures) -> bool:
        return not self._yard.timing.stale(figures.now - row.last_seen_at)


def _age(figures: Figures, since: datetime | None) -> float:
    return (figures.now - since).total_seconds() if since is not None else 0.0


def _queues(figures: Figures) -> Iterator[Family]:
    batches: dict[Labels, float] = {}
    queued: dict[Labels, float] = {}
    waits: dict[Labels, float] = {}
    for row in figures.batches:
        state = "stopping" if row.stops and row.state != BatchState.FINALIZING else row.state
        batches[row.pool, state] = batches.get((row.pool, state), 0) + row.batches
        queued[row.pool,] = queued.get((row.pool,), 0) + row.queued
        waits[row.pool,] = max(waits.get((row.pool,), 0.0), _age(figures, row.waits_since))
    for worker in figures.workers:  # a pool without work has a queue all the same, of none
        queued.setdefault((worker.pool,), 0)
        waits.setdefault((worker.pool,), 0)
    count, oldest = figures.control
    queued[QUEUE,] = count
    waits[QUEUE,] = _age(figures, oldest)
    yield family(metrics.BATCHES, batches)
    yield family(metrics.QUEUED_JOBS, queued)
    yield family(metrics.QUEUE_WAIT, waits)


def _leases(figures: Figures) -> Iterator[Family]:
    counts: dict[Labels, float] = {}
    ages: dict[Labels, float] = {}
    renewals: dict[Labels, float] = {}
    overdue: dict[Labels, float] = {}
    for row in figures.leases:
        pool = (row.pool,)
        counts[row.pool, row.state] = row.leases
        ages[pool] = max(ages.get(pool, 0.0), (figures.now - row.granted_at).total_seconds())
        renewals[pool] = max(renewals.get(pool, 0.0), (figures.now - row.renewed_at).total_seconds())
        overdue[pool] = overdue.get(pool, 0) + row.overdue
    yield family(metrics.LEASES, counts)
    yield family(metrics.LEASE_AGE, ages)
    yield family(metrics.LEASE_RENEWAL_AGE, renewals)
    yield family(metrics.LEASES_OVERDUE, overdue)


def _sweeps(figures: Figures) -> Iterator[Family]:
    sweeps = figures.sweeps
    yield family(metrics.SWEEP_AGE, {(s.name,): (figures.now - s.last_run_at).total_seconds() for s in sweeps})
    yield family(metrics.SWEEP_SECONDS, {(s.name,): s.counts.get("milliseconds", 0) / 1000 for s in sweeps})
    yield family(metrics.SWEEP_UNFINISHED, {(s.name,): unfinished_seconds(s, figures.now) for s in sweeps})
    yield family(metrics.SWEEP_DEGRADED, {(s.name,): float(is_stand_in(s.runner)) for s in sweeps})


def _hosts(heard: Iterable[HostRow]) -> Iterator[Family]:
    """Show hosts one by one; those of a worker that is silent are no figures of now."""
    disks: dict[Labels, float] = {}
    spools: dict[Labels, float] = {}
    gpus: dict[Metric, dict[Labels, float]] = {gauge: {} for gauge, _ in GPU_GAUGES}
    runtimes: dict[Labels, float] = {}
    for row in heard:
        sample = told_sample(row.sample)
        who = (row.pool, row.name)
        spools[who] = float(sample.spool_error is not None)
        if sample.disk_free is not None:
            disks[who] = sample.disk_free
        for number, gpu in enumerate(sample.gpus):
            for gauge, read in GPU_GAUGES:
                if (value := read(gpu)) is not None:
                    gpus[gauge][*who, str(number)] = value
        for runtime in row.runtimes:
            key = (row.pool, _runtime_state(runtime))
            runtimes[key] = runtimes.get(key, 0) + 1
    yield family(metrics.RUNTIMES, runtimes)
    yield family(metrics.DISK_FREE, disks)
    yield family(metrics.SPOOL_FULL, spools)
    for gauge, values in gpus.items():
        yield family(gauge, values)


def _runtime_state(runtime: object) -> str:
    """Read one that was stored; its lists of models are long and not looked at."""
    if not isinstance(runtime, Mapping) or not runtime.get("alive"):
        return "down"
    return "failing" if runtime.get("reason") else "alive"


def _busy(gpu: GpuSample) -> float | None:
    return gpu.utilization / 100 if gpu.utilization is not None else None


GPU_GAUGES = (
    (metrics.GPU_MEMORY_USED, lambda gpu: gpu.memory_used),
    (metrics.GPU_MEMORY_TOTAL, lambda gpu: gpu.memory_total),
    (metrics.GPU_UTILIZATION, _busy),
)
