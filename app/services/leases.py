"""Giving leases back, reporting failures, and ending those whose worker fell silent (PROTOCOL 1, 2, 4)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from sqlmodel import Session

from app.db import events, locks
from app.db import leases as leases_sql
from app.db import workers as workers_sql
from app.db.tables import Batch, Lease, Worker
from app.domain import batches
from app.domain.batches import BatchState
from app.domain.jobs import LeaseEnd
from app.domain.leases import LIVE
from app.domain.rows import RowErrorCode
from app.schemas.claims import EndAnswer, FailureReport, ReleaseRequest
from app.services import damage
from app.services.calling import calling_worker
from app.services.claims import has_work
from app.services.context import Caller, Yard
from app.services.endings import Ending, end_leases, silenced
from app.services.moves import one_by_one
from app.services.presence import hears, listening

ENDED, STALE = "ended", "stale"


def release(yard: Yard, caller: Caller, request: ReleaseRequest, *, boot_id: str | None = None) -> EndAnswer:
    """Put a worker's leases back into the queue; costs neither an attempt nor a loss.

    What the worker could not start counts against it at its next claims. One transaction a batch. Raises NotFound for a
    worker that is not the caller's.
    """
    worker = calling_worker(yard, caller, request.worker_id)
    ends: dict[int, str] = dict.fromkeys(request.leases, STALE)
    for batch_id, ids in _by_batch(yard, worker.id, request.leases).items():

        def work(session: Session, ids: Sequence[int] = ids) -> tuple[Batch | None, list[int]]:
            now = yard.store.now(session)
            locked = locks.leases(session, ids, worker_id=worker.id)
            live = [lease for lease in locked.values() if lease.state in LIVE]
            for lease in live:
                lease.unstarted = request.unstarted
            batch = _end(session, yard, [Ending(lease, LeaseEnd.RELEASED) for lease in live], now, worker.id)
            return batch, [lease.id for lease in live if lease.id is not None]

        batch, ended = yard.store.run(work)
        ends.update(dict.fromkeys(ended, ENDED))
        ring_after(yard, batch, batch_id)
    return EndAnswer(leases=ends, work=note_call(yard, worker, boot_id))


def reads_content(report: FailureReport) -> bool:
    """Tell whether `fail` looks at the input for this report."""
    return report.code is RowErrorCode.INPUT_DAMAGED


def fail(yard: Yard, caller: Caller, report: FailureReport, *, boot_id: str | None = None) -> EndAnswer:
    """Take a worker's report that it could not run a job: an attempt of three (R-21). The same report is taken once.

    Input that a worker calls damaged is looked at here: where it is, no other worker would find it otherwise.
    """
    worker = calling_worker(yard, caller, report.worker_id)
    found = damage.of_input(yard, worker.id, report.lease_id) if reads_content(report) else None

    def work(session: Session) -> tuple[Batch | None, str]:
        now = yard.store.now(session)
        lease = locks.leases(session, [report.lease_id], worker_id=worker.id).get(report.lease_id)
        if lease is not None and lease.report_request == report.request_id:
            return None, ENDED
        if lease is None or lease.state not in LIVE:
            note_stale_report(session, report.lease_id, lease, worker, now=now, data={"error": report.error[:500]})
            return None, STALE
        lease.report_request = report.request_id
        if found is not None:
            damage.note_input(session, found, now)
        message = found.message if found is not None else report.error
        ending = Ending(lease, LeaseEnd.FAILED, (report.code, message[:2000]), final=found is not None)
        return _end(session, yard, [ending], now, worker.id), ENDED

    batch, verdict = yard.store.run(work)
    if batch is not None:
        ring_after(yard, batch, batch.id)
        if found is not None:
            damage.count_input(yard, found)
    return EndAnswer(leases={report.lease_id: verdict}, work=note_call(yard, worker, boot_id))


def expire(yard: Yard, limit: int) -> int:
    """End live leases whose time is over, and those of workers that said goodbye; one transaction each. Count them.

    Where nobody could have heard a heartbeat nothing expires (PROTOCOL 4).
    """
    with yard.store.read() as session:
        now = yard.store.now(session)
        due = leases_sql.overdue(session, now, limit, of=listening(session, yard, now))
    return one_by_one(due, partial(end_silenced, yard, reason="its worker fell silent", overdue_only=True))


def end_silenced(yard: Yard, lease_id: int, *, reason: str, overdue_only: bool = False) -> bool:
    """End one live lease as lost (revoked when it was stopping); False when it had ended.

    With `overdue_only`, as a sweep: only if its time is over, and not when somebody is at it now.
    """

    def work(session: Session) -> Batch | None:
        lease = (
            locks.lease_if_free(session, lease_id) if overdue_only else locks.leases(session, [lease_id]).get(lease_id)
        )
        if lease is None or lease.state not in LIVE:
            return None
        now = yard.store.now(session)
        worker = session.get(Worker, lease.worker_id)
        # Asked again: the machine may have slept between the sweep's look and this lock.
        if overdue_only and worker is not None and not hears(session, yard, worker, now):
            return None
        gone = worker is not None and worker.gone_at is not None and not lease.spooled
        if overdue_only and lease.expires_at >= now and not gone:
            return None
        name = worker.name if worker is not None else lease.worker_id
        error = (RowErrorCode.WORKER_LOST, f"worker {name} was lost while it ran this row: {reason}")
        return _end(session, yard, [Ending(lease, silenced(lease), error)], now, "service:lease-expiry")

    batch = yard.store.run(work)
    if batch is not None:
        ring_after(yard, batch, batch.id)
    return batch is not None


def end_ghost(yard: Yard, lease_id: int) -> bool:
    """Release a lease that its worker never knew of: the claim's answer was lost (PROTOCOL 2)."""

    def work(session: Session) -> Batch | None:
        lease = locks.lease_if_free(session, lease_id)
        if lease is None or lease.missed_beats < leases_sql.GHOST_BEATS:
            return None
        now = yard.store.now(session)
        return _end(session, yard, [Ending(lease, LeaseEnd.GHOST)], now, "service:heartbeat")

    batch = yard.store.run(work)
    if batch is not None:
        ring_after(yard, batch, batch.id)
    return batch is not None


def may_read(yard: Yard, caller: Caller, file_id: str) -> bool:
    """Tell whether a worker's key may read a file's content: only input of jobs that its workers hold (DESIGN 11)."""
    with yard.store.read() as session:
        name = caller.name if caller.single_worker else None
        return leases_sql.reads_file(session, caller.org_id, file_id, worker_name=name)


def note_call(yard: Yard, worker: Worker, boot_id: str | None) -> bool:
    """Note that a worker called, after its call was committed; tells whether the pool has something for it.

    A call without a boot, or of a superseded one, is no sign of life of the worker (PROTOCOL 3).
    """
    if boot_id is None:
        return False
    yard.store.run(lambda session: workers_sql.seen(session, worker.id, boot_id, yard.store.now(session)))
    with yard.store.read() as session:
        now_known = session.get(Worker, worker.id)
        return (
            now_known is not None
            and now_known.boot_id == boot_id
            and has_work(session, yard, now_known, yard.store.now(session))
        )


def note_stale_report(
    session: Session, lease_id: int, lease: Lease | None, worker: Worker, *, now: datetime, data: Mapping[str, object]
) -> None:
    """Keep what a refused report said (FT-03)."""
    events.record(
        session,
        now=now,
        type="lease.stale_report",
        subject=lease.batch_id if lease is not None else worker.id,
        actor=f"worker:{worker.id}",
        org_id=worker.org_id,
        data={"lease": lease_id, "state": lease.state if lease is not None else None, **data},
    )


def ring_after(yard: Yard, batch: Batch | None, batch_id: str) -> None:
    """Ring for what a committed end of leases made possible."""
    if batch is None:
        return
    if batch.state in {BatchState.FINALIZING, BatchState.VALIDATING} | batches.ENDED:  # ended: webhooks are to be told
        yard.bells.control(batch_id)
    elif batch.outcome is None and batch.open_jobs > batch.live:
        yard.bells.batch(batch_id)


def _end(session: Session, yard: Yard, endings: Sequence[Ending], now: datetime, actor: str) -> Batch | None:
    if not endings:
        return None
    pool = leases_sql.pool_of(session, endings[0].lease.batch_id)
    return end_leases(
        session,
        endings,
        now=now,
        limits=yard.limits,
        max_losses=pool.max_losses if pool is not None else None,
        actor=f"worker:{actor}" if actor.startswith("wrk_") else actor,
    )


def _by_batch(yard: Yard, worker_id: str, ids: Iterable[int]) -> dict[str, list[int]]:
    with yard.store.read() as session:
        return leases_sql.by_batch(session, worker_id, list(ids))
