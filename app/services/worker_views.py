"""Workers as people see them: what is stored, and what their silence says when somebody looks (PL-06, WS-01)."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import worker_views as workers_sql
from app.db.metrics import WorkerRow
from app.db.tables import Pool, Worker
from app.domain.eligibility import No, WorkerView, why_no_job
from app.domain.errors import BadRequest, NotFound
from app.domain.timing import Timing
from app.domain.workers import WorkerState
from app.schemas.listing import Listing, page
from app.schemas.worker_views import SlotInfo, WorkerInfo
from app.services import cursors
from app.services.context import Caller, Yard
from app.services.eligibility import pool_rules, told, told_pulls, told_runtimes, told_sample, worker_view
from app.services.whole_rows import check_whole

MAX_WORKERS_LISTED = 1000


def listed(
    yard: Yard,
    caller: Caller,
    *,
    pool: str | None = None,
    gone: bool = False,
    after: str | None = None,
    limit: int = MAX_WORKERS_LISTED,
) -> Listing[WorkerInfo]:
    """List the org's workers by pool and name; the operator sees everybody's. Raises BadRequest for a wrong `after`."""
    org_id = _seen_by(caller)
    with yard.store.read() as session:
        behind = cursors.behind(after, lambda id_: workers_sql.by_id(session, id_, org_id), "No such worker")
        found = workers_sql.listed(session, org_id, pool=pool, gone=gone, behind=behind, limit=limit + 1)
        data = _shown(session, yard, found[:limit])
    return page(data, has_more=len(found) > limit)


def show(yard: Yard, caller: Caller, id_or_name: str) -> WorkerInfo:
    """Show a worker. Raises as `find`, and Unreadable."""
    with yard.store.read() as session:
        found = find(session, caller, id_or_name)
        check_whole(found, f"worker {found.name}")
        return _shown(session, yard, [found])[0]


def find(session: Session, caller: Caller, id_or_name: str) -> Worker:
    """Find the worker that a person means: the one with that id, else the caller's own of that name.

    The operator may also name another org's worker, while one org alone has that name. Raises NotFound, BadRequest
    `ambiguous_name`.
    """
    org_id = _seen_by(caller)
    found = workers_sql.by_id(session, id_or_name, org_id)
    if found is not None:
        return found
    named = workers_sql.by_name(session, id_or_name, caller.org_id) or workers_sql.by_name(session, id_or_name, org_id)
    if not named:
        raise NotFound(f"no worker {id_or_name!r}", code="worker_not_found", param="id")
    if len(named) > 1:
        which = ", ".join(f"{org.name}/{worker.name} is {worker.id}" for worker, org in named)
        raise BadRequest(
            f"workers of several orgs are named {id_or_name!r}; give the id of one: {which}",
            code="ambiguous_name",
            param="id",
        )
    return named[0][0]


def state_seen(worker: Worker | WorkerRow, silence: timedelta, timing: Timing) -> str:
    """Name a worker's state as its silence leaves it; one that has left is not relabelled (WS-02)."""
    if worker.state == WorkerState.GONE:
        return WorkerState.GONE.value
    if worker.offline_at is not None:
        return "offline"
    if timing.stale(silence):
        return "stale"
    return "unreachable" if timing.unreachable(silence) else worker.state


def _seen_by(caller: Caller) -> str | None:
    """Name the org whose workers a caller sees; None: all."""
    return None if caller.operator else caller.org_id


def _shown(session: Session, yard: Yard, workers: Sequence[Worker]) -> list[WorkerInfo]:
    now = yard.store.now(session)
    held = workers_sql.held_batches(session, [worker.id for worker in workers])
    pools = {name: session.get(Pool, name) for name in {worker.pool for worker in workers}}
    return [_info(yard, worker, pools[worker.pool], held.get(worker.id, 0), now) for worker in workers]


def _info(yard: Yard, worker: Worker, pool: Pool | None, held: int, now: datetime) -> WorkerInfo:
    timing = told(worker, yard.timing)
    view = worker_view(worker, now=now, timing=yard.timing, held_batches=held)
    sample = told_sample(worker.sample)
    silence = now - worker.last_seen_at
    no = why_no_job(view, pool_rules(pool))
    return WorkerInfo(
        id=worker.id,
        name=worker.name,
        pool=worker.pool,
        state=state_seen(worker, silence, timing),
        phase=worker.phase,
        activity=worker.activity,
        transport=worker.transport,
        hostname=worker.hostname,
        last_seen_at=worker.last_seen_at.timestamp(),
        seen_seconds=round(silence.total_seconds(), 3),
        created_at=int(worker.created_at.timestamp()),
        drain_requested_at=worker.drain_requested_at.timestamp() if worker.drain_requested_at is not None else None,
        slots={"batches": SlotInfo(total=worker.slots, free=_free(worker, held, view, no))},
        max_concurrent_prompts=worker.max_concurrent_prompts,
        current_invocations=worker.current_invocations,
        load_per_cpu=round(view.load_per_cpu, 3) if view.load_per_cpu is not None else None,
        memory_available=sample.memory_available,
        memory_total=sample.memory_total,
        disk_free=sample.disk_free,
        no_lease=no.value if no is not None else _last_answer(worker, held),
        no_lease_text={No.DISK: sample.spool_error, No.PHASE: sample.not_ready}.get(no) if no is not None else None,
        gpus=sample.gpus,
        driver=sample.driver,
        gpu_error=sample.gpu_error,
        runtimes=told_runtimes(worker),
        pulls=told_pulls(worker),
        tags=worker.tags,
        versions=worker.versions,
    )


def _last_answer(worker: Worker, held: int) -> str | None:
    """Give what its last claim was told. Who is full claims no more, so `nothing` may be long untrue of it."""
    return No.SLOTS.value if worker.no_lease == No.NOTHING and held >= worker.slots else worker.no_lease


def _free(worker: Worker, held: int, view: WorkerView, no: No | None) -> int:
    if view.unreachable or no not in {None, No.SLOTS}:
        return 0
    return max(0, worker.slots - held)
