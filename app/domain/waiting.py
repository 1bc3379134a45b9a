"""Why does a batch wait? The first reason that keeps every worker of its pool from it (DESIGN 7, "Why not")."""

from collections import Counter
from collections.abc import Collection, Sequence

from app.domain.eligibility import No, PoolRules, Requirement, WorkerView, can_serve, missing_parameters, why_no_job
from app.domain.workers import WorkerState

_BUSY_WORDS = {
    No.DRAINING: "draining",
    No.PHASE: "setting up",
    No.MEMORY: "short of memory",
    No.LOAD: "over the load bound",
    No.SLOTS: "busy",
}


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
        return f"all {len(present)} workers of pool {pool} are unreachable"
    able = [w for w in reachable if not needs or any(can_serve(w.runtimes, need, live_only=True) for need in needs)]
    if not able:
        return _unserved(reachable, needs, pool)
    free = [worker for worker in able if why_no_job(worker, rules) is None]
    if earlier and not free:
        return f"{earlier} earlier {'batch' if earlier == 1 else 'batches'} of pool {pool} first"
    if not free:
        return _occupied(able, rules, pool)
    which = "the free worker" if len(free) == 1 else f"one of {len(free)} free workers"
    return f"about to start on {which} of pool {pool}"


def _unserved(reachable: Sequence[WorkerView], needs: Collection[Requirement], pool: str) -> str:
    runtimes = [runtime for worker in reachable for runtime in worker.runtimes if runtime.alive]
    if not runtimes:
        return f"no runtime of pool {pool} is up"
    for need in sorted(needs, key=lambda need: need.key):
        served = [runtime for runtime in runtimes if need.endpoint in runtime.endpoints]
        if not served:
            return f"no worker of pool {pool} serves {need.endpoint} now"
        for model in need.models:
            if not any(runtime.serves(model) or runtime.pulls for runtime in served):
                return f"no worker of pool {pool} serves model {model} now"
        for model, names in missing_parameters([served], need).items():
            return f"no worker of pool {pool} that serves model {model} takes {', '.join(sorted(names))} now"
    if any(need.parameters for need in needs):
        return f"no worker of pool {pool} serves all models and takes all parameters of a shard now"
    return f"no worker of pool {pool} serves all models of a shard now"


def _occupied(able: Sequence[WorkerView], rules: PoolRules, pool: str) -> str:
    reasons = Counter(why_no_job(worker, rules) for worker in able)
    if set(reasons) == {No.SLOTS}:
        return f"all slots of pool {pool} are busy"
    words = ", ".join(
        f"{count} {_BUSY_WORDS.get(no, str(no))}" for no, count in reasons.most_common() if no is not None
    )
    return f"no worker of pool {pool} is free: {words}"
