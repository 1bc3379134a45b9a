"""Claiming: a worker asks for shards and gets leases, or a typed *no* (PROTOCOL 1, 2, 6; R-01).

One transaction: lock the worker, judge it, choose the batch, take its queued shards, read what of them is finished,
insert the leases, and last of all count them on the batch, which refuses when the batch was told to end meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from sqlmodel import Session

from app.db import claims as claims_sql
from app.db import events
from app.db import jobs as jobs_sql
from app.db import leases as leases_sql
from app.db.idle import idle_workers
from app.db.tables import Batch, Job, Lease, Pool, Worker
from app.domain.eligibility import No, WorkerView, why_no_job
from app.domain.leases import LIVE, held_back_until
from app.domain.ordering import Turn, in_order, must_yield
from app.schemas.claims import ClaimAnswer, ClaimRequest
from app.services import cautious, pulls
from app.services.calling import checked_worker
from app.services.cautious import Standing
from app.services.claim_answers import answer, answer_again, with_rows
from app.services.context import Caller, Yard
from app.services.eligibility import pool_rules, told, worker_view
from app.services.grants import grant
from app.services.pulls import Leaves
from app.services.requirements import needs_of, servable_keys

MAX_SHARDS = 64
"""Shards of one claim at most; a worker that wants more asks again."""
MAX_PAGES = 8
"""Windows of waiting batches that one claim looks through for something its worker can serve."""


class _BatchEnded(Exception):
    """The chosen batch was told to end between reading and counting: roll everything back, answer `nothing`."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    batch: Batch
    keys: frozenset[str]


def claim(yard: Yard, caller: Caller, request: ClaimRequest) -> ClaimAnswer:
    """Grant shards of one batch, and put short rows beside them (`grant_shards`, `with_rows`)."""
    return with_rows(yard, grant_shards(yard, caller, request))


def grant_shards(yard: Yard, caller: Caller, request: ClaimRequest) -> ClaimAnswer:
    """Grant shards of one batch. Repeating a request by its `request_id` gives the same leases, those still held.

    No content is read. Raises NotFound (no such worker of this org) and Conflict `superseded` (another boot took the
    name).
    """
    try:
        return yard.store.run(lambda session: _claim(session, yard, caller, request))
    except _BatchEnded:
        # No loop: the batch that ended is no candidate of the next claim.
        return ClaimAnswer(no=No.NOTHING, work=True)


def has_work(session: Session, yard: Yard, worker: Worker, now: datetime) -> bool:
    """Tell whether the pool has something that this worker may take now; what every bell without a broker says."""
    return first_work(session, yard, worker, now) is not None


def first_work(session: Session, yard: Yard, worker: Worker, now: datetime) -> Batch | None:
    """Give the batch whose turn it is with this worker now, or None when it may take nothing."""
    view = _view(session, yard, worker, now)
    if why_no_job(view, pool_rules(session.get(Pool, worker.pool))) is not None:
        return None
    leaves = pulls.leaves_to_others(session, yard, worker, now, running=None)
    standing = cautious.look(session, yard, worker, view, leaves, now)
    if standing.runs_one:
        return None
    candidates = _candidates(session, worker, view, leaves, now)
    careful = _goes_first(standing, candidates)
    found = careful or (candidates[0].batch if candidates else None)
    if found is None or (careful and standing.holds_some) or _is_held_back(session, worker, now):
        return None
    return found


def _claim(session: Session, yard: Yard, caller: Caller, request: ClaimRequest) -> ClaimAnswer:
    worker = checked_worker(session, caller, request.worker_id, request.boot_id, lock=True)
    now = yard.store.now(session)
    repeated = leases_sql.by_request(session, worker.id, request.request_id)
    if repeated:
        return answer_again(session, [lease for lease in repeated if lease.state in LIVE])
    held = set(leases_sql.batches_of_worker(session, worker.id))
    worker.holds = bool(held)
    running = request.batch_id if request.started else None
    # A share that goes on needs no new slot.
    view = worker_view(worker, now=now, timing=yard.timing, held_batches=len(held - {running}))
    no = why_no_job(view, pool_rules(session.get(Pool, worker.pool)))
    # Whoever calls is reachable, whatever the clock said before this call.
    if no in {None, No.UNREACHABLE}:
        no = No.UNSTARTED if not request.started and _is_held_back(session, worker, now) else None
    if no is not None:
        return _refuse(session, worker, no)
    leaves = pulls.leaves_to_others(session, yard, worker, now, running=running)
    standing = cautious.look(session, yard, worker, view, leaves, now)
    if standing.runs_one:
        return _refuse(session, worker, No.YIELD)
    candidates = _candidates(session, worker, view, leaves, now)
    if careful := _goes_first(standing, candidates):
        job = cautious.take(session, worker, standing, now)
        if job is not None and standing.holds_some:
            return _refuse(session, worker, No.YIELD)
        if job is not None:
            return _granted(session, yard, worker, careful, [job], request, now)
    chosen = _choose(session, worker, candidates, view, leaves, request, now)
    if isinstance(chosen, No):
        return _refuse(session, worker, chosen, work=bool(candidates))
    taken = _take(session, yard, worker, chosen, request, now)
    if not taken:  # other workers were quicker
        return _refuse(session, worker, No.NOTHING, work=len(candidates) > 1)
    return _granted(session, yard, worker, chosen.batch, taken, request, now, work=len(candidates) > 1)


def _is_held_back(session: Session, worker: Worker, now: datetime) -> bool:
    """Whether a worker is granted nothing now, because it started none of its last claims.

    A new start of its process and `worker reset` let it try again at once.
    """
    since = max(worker.hello_at, worker.reset_requested_at or worker.hello_at)
    until = held_back_until(leases_sql.claim_ends(session, worker.id, since))
    return until is not None and now < until


def _view(session: Session, yard: Yard, worker: Worker, now: datetime) -> WorkerView:
    held = set(leases_sql.batches_of_worker(session, worker.id))
    return worker_view(worker, now=now, timing=yard.timing, held_batches=len(held))


def _candidates(session: Session, worker: Worker, view: WorkerView, leaves: Leaves, now: datetime) -> list[_Candidate]:
    """Give waiting batches of the pool that this worker can serve, in the order of their turn.

    Page by page until one has some: what waits for another model must not hide what stands behind it.
    """
    last: Batch | None = None
    for _ in range(MAX_PAGES):
        page = claims_sql.waiting_batches(session, worker.pool, now, after=last)
        if candidates := _servable(session, worker, page, view, leaves, now):
            return candidates
        if len(page) < claims_sql.WINDOW:
            break
        last = page[-1]
    return []


def _servable(
    session: Session, worker: Worker, page: Sequence[Batch], view: WorkerView, leaves: Leaves, now: datetime
) -> list[_Candidate]:
    found = {batch.id: batch for batch in page}
    groups = sorted({batch.fair_group for batch in found.values() if batch.fair_group is not None})
    live = claims_sql.live_by_group(session, worker.pool, groups)
    ordered = (found[turn.batch_id] for turn in in_order([_turn(batch) for batch in found.values()], live))
    judged = (_judge(session, batch, view, leaves, now) for batch in ordered)
    return [candidate for candidate in judged if candidate is not None]


def _judge(session: Session, batch: Batch, view: WorkerView, leaves: Leaves, now: datetime) -> _Candidate | None:
    keys = servable_keys(batch, view) - leaves(batch)
    if not keys or (
        len(keys) < len(needs_of(batch)) and not jobs_sql.shard_waits(session, batch.id, keys=keys, now=now)
    ):
        return None
    return _Candidate(batch, keys)


def _turn(batch: Batch) -> Turn:
    return Turn(batch.id, batch.rank, batch.expires_at, batch.fair_group, batch.seq or 0, batch.live)


def _goes_first(standing: Standing, candidates: Sequence[_Candidate]) -> Batch | None:
    """Give the batch whose cautious shard is next for a worker, unless something more urgent waits."""
    careful = standing.batch
    if careful is None or (candidates and must_yield(_turn(careful), _turn(candidates[0].batch))):
        return None
    return careful


def _choose(
    session: Session,
    worker: Worker,
    candidates: Sequence[_Candidate],
    view: WorkerView,
    leaves: Leaves,
    request: ClaimRequest,
    now: datetime,
) -> _Candidate | No:
    if not candidates:
        return No.NOTHING
    first = candidates[0]
    if not request.started:
        return first
    running = next((c for c in candidates if c.batch.id == request.batch_id), None)
    if running is None and request.batch_id is not None:  # it may stand behind the window
        batch = claims_sql.waiting_batch(session, worker.pool, request.batch_id, now)
        running = _judge(session, batch, view, leaves, now) if batch is not None else None
    if running is None:
        return No.NOTHING
    return No.YIELD if must_yield(_turn(running.batch), _turn(first.batch)) else running


def _take(
    session: Session, yard: Yard, worker: Worker, chosen: _Candidate, request: ClaimRequest, now: datetime
) -> list[Job]:
    """Lock as many queued shards as cover `want_rows`; one while others of the pool hold nothing."""
    reachable_since = now - told(worker, yard.timing).grace
    idle = idle_workers(session, worker.pool, but=worker.id, seen_after=reachable_since, limit=1)
    taken: list[Job] = []
    most = 1 if idle else min(MAX_SHARDS, chosen.batch.shards)
    missing = request.want_rows
    while missing > 0 and len(taken) < most:
        jobs = jobs_sql.take_shards(
            session,
            chosen.batch.id,
            keys=chosen.keys,
            worker_id=worker.id,
            now=now,
            limit=min(most - len(taken), ceil(missing / yard.limits.shard_rows)),
            but=[job.id or 0 for job in taken],
        )
        if not jobs:
            break
        taken += jobs
        missing -= sum(job.rows - job.completed - job.failed for job in jobs)
    return taken


def _grant(
    session: Session,
    yard: Yard,
    worker: Worker,
    batch: Batch,
    jobs: Sequence[Job],
    request: ClaimRequest,
    now: datetime,
) -> list[Lease]:
    leases = grant(
        session,
        jobs,
        worker,
        request_id=request.request_id,
        now=now,
        expires_at=told(worker, yard.timing).lease_end(now),
        subject=batch.id,
        org_id=batch.org_id,
    )
    live = claims_sql.count_live(session, batch.id, len(leases))
    if live is None:
        raise _BatchEnded
    if live == len(leases):  # it had none, so it was `validated`; asked of the update, for what was read may be old
        actor = f"worker:{worker.id}"
        events.record(session, now=now, type="batch.in_progress", subject=batch.id, actor=actor, org_id=batch.org_id)
    return leases


def _granted(
    session: Session,
    yard: Yard,
    worker: Worker,
    batch: Batch,
    taken: Sequence[Job],
    request: ClaimRequest,
    now: datetime,
    *,
    work: bool = False,
) -> ClaimAnswer:
    leases = _grant(session, yard, worker, batch, taken, request, now)
    worker.no_lease, worker.holds = None, True
    session.add(worker)
    return answer(session, batch, list(zip(leases, taken, strict=True)), work=work)


def _refuse(session: Session, worker: Worker, no: No, *, work: bool = False) -> ClaimAnswer:
    worker.no_lease = no.value
    session.add(worker)
    return ClaimAnswer(no=No.PHASE if no is No.UNSTARTED else no, work=work)
