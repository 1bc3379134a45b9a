"""Why does a batch wait? The first reason that keeps every worker of its pool from it (DESIGN 7, "Why not")."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from app.domain.eligibility import (
    No,
    PoolRules,
    Requirement,
    Serving,
    WorkerView,
    can_serve,
    missing_parameters,
    why_no_job,
)
from app.domain.pulls import Pull, PullStatus
from app.domain.workers import WorkerState

_BUSY_WORDS = {
    No.DRAINING: "draining",
    No.PHASE: "setting up",
    No.MEMORY: "short of memory",
    No.LOAD: "over the load bound",
    No.DISK: "out of disk",
    No.SLOTS: "busy",
}

MOST_NAMED = 2
"""Runtimes or pulls that a reason names; it stays a line that a person reads."""
MOST_PARAMETERS = 5
MAX_REASON = 120


def why_waiting(
    workers: Sequence[WorkerView], needs: Collection[Requirement], *, pool: str, rules: PoolRules, earlier: int
) -> str:
    """Say in a sentence why a batch with queued work has no worker on it.

    `workers` are all of its pool that have not left; `earlier` counts the pool's batches that go first.
    """
    present = [worker for worker in workers if worker.state is not WorkerState.GONE]
    if not present:
        return f"no worker of pool {pool} is registered"
    reachable = [worker for worker in present if not worker.unreachable]
    if not reachable:
        those = "the only worker" if len(present) == 1 else f"all {len(present)} workers"
        return f"{those} of pool {pool} {'is' if len(present) == 1 else 'are'} unreachable"
    able = [w for w in reachable if not needs or any(can_serve(w.runtimes, need, live_only=True) for need in needs)]
    if not able:
        return _unserved(reachable, needs, pool)
    models = {model for need in needs for model in need.models}
    fetching = [worker for worker in able if _fetches(worker, models)]
    free = [worker for worker in able if worker not in fetching and why_no_job(worker, rules) is None]
    if fetching and not free:
        return _some([word for worker in fetching for word in _words(worker.name, worker.pulls, models)])
    if earlier and not free:
        return f"{earlier} earlier {'batch' if earlier == 1 else 'batches'} of pool {pool} first"
    if not free:
        return _occupied(able, rules, pool)
    which = "the free worker" if len(free) == 1 else f"one of {len(free)} free workers"
    return f"about to start on {which} of pool {pool}"


def why_no_rows(workers: Iterable[tuple[str, Collection[Pull]]], models: Collection[str]) -> str | None:
    """Say which of a batch's models its workers, by name and pulls, fetch now; None when they fetch none."""
    found = [word for name, pulls in workers for word in _words(name, pulls, models)]
    return _some(found) if found else None


def why_held(workers: Iterable[tuple[str, Collection[Serving]]], needs: Collection[Requirement]) -> str | None:
    """Say which runtimes keep rows waiting that workers, by name and runtimes, hold: all those for some model.

    None while each model that they know has a runtime that takes rows.
    """
    held = [(name, runtime) for name, runtimes in workers for runtime in runtimes]
    ill: dict[tuple[str, str], str] = {}
    for endpoint, (model, asked) in ((need.endpoint, ask) for need in needs for ask in need.asks):
        fit = [
            (name, runtime)
            for name, runtime in held
            if endpoint in runtime.endpoints and runtime.serves(model) and runtime.could_run(endpoint, model, asked)
        ]
        if not any(runtime.alive and not runtime.reason for _, runtime in fit):
            ill |= {(name, runtime.name): _trouble(name, runtime) for name, runtime in fit}
    return _some(list(ill.values())) if ill else None


def _trouble(name: str, runtime: Serving) -> str:
    """Say what is wrong with a runtime: nobody answers, or one row at a time is tried."""
    if not runtime.alive:
        return _down(name, runtime)
    return f"{runtime.name or runtime.kind} of worker {name}: {runtime.reason[:MAX_REASON]}"


def _down(name: str, runtime: Serving) -> str:
    return f"{runtime.name or runtime.kind} of worker {name} is down{_because(runtime)}"


def _fetches(worker: WorkerView, models: Collection[str]) -> bool:
    return any(pull.status is PullStatus.PULLING and pull.model in models for pull in worker.pulls)


def _words(name: str, pulls: Collection[Pull], models: Collection[str]) -> list[str]:
    return [
        f"worker {name} fetches model {pull.model}{_so_far(pull)}"
        for pull in pulls
        if pull.status is PullStatus.PULLING and pull.model in models
    ]


def why_cautious(number: int, worker: str) -> str:
    """Say why a shard that lost several workers does not run yet: the worker chosen for it still holds other work."""
    return f"shard {number} lost several workers and runs row by row once worker {worker} holds nothing else"


def _so_far(pull: Pull) -> str:
    if pull.total:
        return f": {100 * pull.completed // pull.total} % of {_bytes(pull.total)}"
    return f": {_bytes(pull.completed)} so far" if pull.completed else ""


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**8 else f"{count / 1e6:.1f} MB"


def _some(found: Sequence[str]) -> str:
    more = len(found) - MOST_NAMED
    return "; ".join(found[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_PARAMETERS
    return ", ".join(names[:MOST_PARAMETERS]) + (f" and {more} more" if more > 0 else "")


def _unserved(reachable: Sequence[WorkerView], needs: Collection[Requirement], pool: str) -> str:
    runtimes = [runtime for worker in reachable for runtime in worker.runtimes if runtime.alive]
    down = [(worker.name, runtime) for worker in reachable for runtime in worker.runtimes if not runtime.alive]
    if not runtimes:
        return _with(f"no runtime of pool {pool} is up", down)
    for need in sorted(needs, key=lambda need: need.key):
        served = [runtime for runtime in runtimes if need.endpoint in runtime.endpoints]
        if not served:
            lost = [(name, runtime) for name, runtime in down if need.endpoint in runtime.endpoints]
            return _with(f"no worker of pool {pool} serves {need.endpoint} now", lost)
        for model in need.models:
            if not any(runtime.serves(model) or runtime.pulls for runtime in served):
                lost = [(name, runtime) for name, runtime in down if _might_serve(runtime, model)]
                return _with(f"no worker of pool {pool} serves model {model} now", lost)
        for model, names in missing_parameters([served], need).items():
            asked = need.asked_of(model)
            lost = [(name, runtime) for name, runtime in down if runtime.could_run(need.endpoint, model, asked)]
            return _with(f"no worker of pool {pool} that serves model {model} takes {_listed(sorted(names))} now", lost)
    if any(need.parameters for need in needs):
        return f"no worker of pool {pool} serves all models and takes all parameters of a shard now"
    return f"no worker of pool {pool} serves all models of a shard now"


def _might_serve(runtime: Serving, model: str) -> bool:
    """Tell whether a runtime that is down may have a model; one that was never seen up tells nothing of itself."""
    return runtime.serves(model) or runtime.pulls or not runtime.models


def _with(what: str, down: Sequence[tuple[str, Serving]]) -> str:
    """Name the runtimes that would serve it if they were up."""
    named = [_down(name, runtime) for name, runtime in down]
    return f"{what}: {_some(named)}" if named else what


def _because(runtime: Serving) -> str:
    return f" ({runtime.reason[:MAX_REASON]})" if runtime.reason else ""


def _occupied(able: Sequence[WorkerView], rules: PoolRules, pool: str) -> str:
    reasons = Counter(why_no_job(worker, rules) for worker in able)
    if set(reasons) == {No.SLOTS}:
        return f"all slots of pool {pool} are busy"
    words = ", ".join(
        f"{count} {_BUSY_WORDS.get(no, str(no))}" for no, count in reasons.most_common() if no is not None
    )
    return f"no worker of pool {pool} is free: {words}"
