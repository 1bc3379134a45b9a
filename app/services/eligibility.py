"""From rows of the database to the domain's question: why may this worker not take this job."""

from collections.abc import Mapping
from datetime import timedelta

from app.db.tables import Pool, Worker
from app.domain.eligibility import PoolRules, Serving, WorkerView
from app.domain.timing import Timing
from app.domain.workers import Phase, WorkerState
from app.schemas.fitting import fit
from app.schemas.pulls import PullInfo
from app.schemas.workers import HostSample, RuntimeInfo

OVERLAP = 1
"""A worker may hold this many batches beyond its slots: the next one starts while the last rows of the old one run."""


def servings(worker: Worker) -> tuple[Serving, ...]:
    """Give what a worker's runtimes served when it last told."""
    return tuple(runtime.to_domain() for runtime in told_runtimes(worker))


def told_runtimes(worker: Worker) -> list[RuntimeInfo]:
    """Give what a worker last told of its runtimes, as far as it is in bounds."""
    return [found for runtime in worker.runtimes if (found := fit(RuntimeInfo, runtime)) is not None]


def told_sample(sample: Mapping[str, object] | None) -> HostSample:
    """Give what a worker last told of its host, as far as it is in bounds."""
    return fit(HostSample, sample or {}) or HostSample()


def told_pulls(worker: Worker) -> list[PullInfo]:
    """Give what a worker told of its pulls, as far as it is in bounds, oldest first."""
    return [found for pull in worker.pulls if (found := fit(PullInfo, pull)) is not None]


def rungs(service: Timing, own: Mapping[str, float]) -> Timing:
    """Give a pool's own rungs, as far as they are legal now (Timing.nearest), or the service's."""
    return service.nearest(own) if own else service


def told(worker: Worker, service: Timing) -> Timing:
    """Give the rungs that a worker lives by: those its last hello was told.

    A change of the pool's or of the service's must not reach the leases of a worker that stops itself by the old ones:
    a job could run twice. The service's are for one that said hello before they were stored for every worker.
    """
    return rungs(service, worker.timing)


def worker_view(
    worker: Worker, *, silence: timedelta, timing: Timing, held_batches: int, overlap: int = OVERLAP
) -> WorkerView:
    """Give what eligibility asks of a worker. `held_batches` counts distinct batches it holds leases of.

    `silence` is none for the worker that calls. `timing` is the service's; what the worker was told wins. `overlap` is
    0 where a person is told who is free.
    """
    sample = told_sample(worker.sample)
    load = sample.load1 / sample.cpus if sample.load1 is not None and sample.cpus else None
    memory = sample.memory_available / 1e9 if sample.memory_available is not None else None
    return WorkerView(
        state=WorkerState(worker.state) if worker.drain_requested_at is None else WorkerState.DRAINING,
        phase=Phase(worker.phase) if worker.phase else None,
        unreachable=told(worker, timing).unreachable(silence),
        free_slots=worker.slots + overlap - held_batches if worker.slots else 0,
        load_per_cpu=load,
        memory_gb=memory,
        runtimes=servings(worker),
        name=worker.name,
        disk_full=sample.spool_error is not None,
        pulls=tuple(pull.to_domain() for pull in told_pulls(worker)),
    )


def pool_rules(pool: Pool | None) -> PoolRules:
    """Give a pool's thresholds; a pool nobody declared has none."""
    return PoolRules(pool.max_load, pool.min_memory_gb) if pool is not None else PoolRules()


def pool_slots(pool: Pool | None, *, otherwise: int) -> int:
    """Give the batches that each worker of a pool runs at once: the pool's word, else the worker's own (PL-01)."""
    return int(pool.slots.get("batches", otherwise)) if pool is not None else otherwise
