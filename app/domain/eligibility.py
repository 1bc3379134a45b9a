"""Why may this worker not take this job, now or ever? The one place where a hard constraint lives (DESIGN 7).

Claim, dispatch, `worker list`, a batch's waiting reason and the validator all ask here.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from app.domain.parameters import refused
from app.domain.pulls import Pull
from app.domain.workers import Phase, WorkerState


class No(StrEnum):
    """Why a claim was answered with no job. Of several the first in this order is shown (R-34)."""

    DRAINING = "draining"
    PHASE = "phase"
    UNREACHABLE = "unreachable"
    DISK = "disk"
    MEMORY = "memory"
    LOAD = "load"
    LIMIT = "limit"
    YIELD = "yield"
    SLOTS = "slots"
    UNSTARTED = "unstarted"
    """It started none of its last claims. Workers are answered `phase`: an older one does not know this word."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Serving:
    """What one runtime of a worker serves. `pulls`: it fetches models it lacks. `reason`: why it is not alive.

    `unsupported` are the parameters it does not take, by endpoint; who tells nothing takes everything.
    """

    kind: str
    models: frozenset[str]
    endpoints: frozenset[str]
    alive: bool = True
    pulls: bool = False
    unsupported: Mapping[str, frozenset[str]] = field(default_factory=dict)
    name: str = ""
    reason: str = ""

    def serves(self, model: str) -> bool:
        """Tell whether `model` is there; on Ollama `x` is `x:latest`."""
        names = {model}
        if self.kind == "ollama":
            names.add(model.removesuffix(":latest") if model.endswith(":latest") else f"{model}:latest")
        return not names.isdisjoint(self.models)

    def refuses(self, endpoint: str, parameters: Collection[str]) -> frozenset[str]:
        """Give those of a row's parameters that it does not take."""
        return refused(self.unsupported.get(endpoint, frozenset()), endpoint, parameters) if parameters else frozenset()

    def could_run(self, endpoint: str, model: str, parameters: Collection[str]) -> bool:
        """Tell whether it serves or would fetch a model, and takes what the rows of that model ask for."""
        return (self.serves(model) or self.pulls) and not self.refuses(endpoint, parameters)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a job needs of its worker. Jobs with equal needs share a key, so needs are judged once a batch.

    `parameters` are, for models whose rows ask for any, what not every runtime takes (app.domain.parameters).
    """

    endpoint: str
    models: tuple[str, ...]
    parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def key(self) -> str:
        """A short stable hash of the needs."""
        parts = [self.endpoint, sorted(self.models), sorted((m, sorted(names)) for m, names in self.parameters)]
        text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()[:16]

    def asked_of(self, model: str) -> tuple[str, ...]:
        """Give the parameters that the rows of one model ask for."""
        return next((names for name, names in self.parameters if name == model), ())

    @property
    def asks(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each model with the parameters that its rows ask for."""
        asked = dict(self.parameters)
        return [(model, asked.get(model, ())) for model in self.models]


@dataclass(frozen=True, slots=True)
class PoolRules:
    """A pool's thresholds (PL-01). `max_load` is 1-minute load a CPU, memory in GB (10^9 bytes); None: no bound."""

    max_load: float | None = None
    min_memory_gb: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What is known of a worker when the question is asked."""

    state: WorkerState
    phase: Phase | None
    unreachable: bool
    free_slots: int
    load_per_cpu: float | None = None
    memory_gb: float | None = None
    runtimes: tuple[Serving, ...] = field(default=())
    name: str = ""
    pulls: tuple[Pull, ...] = field(default=())
    disk_full: bool = False
    """It cannot keep what it finishes until that is stored."""


def why_no_job(worker: WorkerView, pool: PoolRules) -> No | None:
    """Say why this worker may take no job at all now, or None when it may. Precedence: R-34."""
    load, memory = worker.load_per_cpu, worker.memory_gb
    checks = (
        (worker.state in {WorkerState.DRAINING, WorkerState.GONE}, No.DRAINING),
        (worker.state is WorkerState.SETTING_UP or worker.phase in {Phase.BOOTING, Phase.SETUP}, No.PHASE),
        (worker.unreachable, No.UNREACHABLE),
        (worker.disk_full, No.DISK),
        (pool.min_memory_gb is not None and memory is not None and memory < pool.min_memory_gb, No.MEMORY),
        (pool.max_load is not None and load is not None and load > pool.max_load, No.LOAD),
        (worker.free_slots <= 0, No.SLOTS),
    )
    return next((reason for holds, reason in checks if holds), None)


def can_serve(runtimes: Collection[Serving], need: Requirement, *, live_only: bool) -> bool:
    """Tell whether `runtimes` together serve every model of `need` on its endpoint, and take its rows' parameters.

    `live_only=False` asks whether they ever could: what a runtime that is down now served when it last answered counts.
    """
    usable = [r for r in runtimes if (r.alive or not live_only) and need.endpoint in r.endpoints]
    return bool(usable) and all(any(r.could_run(need.endpoint, *ask) for r in usable) for ask in need.asks)


def missing_models(workers: Collection[Collection[Serving]], need: Requirement) -> tuple[str, ...]:
    """Name the models that none of the workers could ever serve; empty when each could be served somewhere."""
    served = [r for runtimes in workers for r in runtimes if need.endpoint in r.endpoints]
    return tuple(m for m in need.models if not any(r.serves(m) or r.pulls for r in served))


def missing_parameters(workers: Collection[Collection[Serving]], need: Requirement) -> Mapping[str, frozenset[str]]:
    """Name by model the parameters that none of the workers could ever take; empty when each has a taker somewhere."""
    served = [r for runtimes in workers for r in runtimes if need.endpoint in r.endpoints]
    found: dict[str, frozenset[str]] = {}
    for model, names in need.parameters:
        refusals = [r.refuses(need.endpoint, names) for r in served if r.serves(model) or r.pulls]
        if lacking := frozenset.intersection(*refusals) if refusals else frozenset():
            found[model] = lacking
    return found


def undecided(runtimes: Collection[Serving]) -> bool:
    """Tell whether nobody knows yet what a worker serves: one of its runtimes, or all, never told its models."""
    return not runtimes or any(not runtime.alive and not runtime.models for runtime in runtimes)
