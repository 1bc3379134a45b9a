"""Cautious shards: who runs the next one, and who gets nothing meanwhile (R-04, PROTOCOL 5).

A claim decides. A worker that holds nothing takes the shard. One that holds something is chosen for it while nobody
else is: its claims are answered `yield` until it holds nothing. Whoever is idle before that takes the shard instead,
so a chosen worker that dies, drains or is slow holds up nobody. While a worker runs a cautious shard it gets nothing.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from app.db import cautious as cautious_sql
from app.db import events
from app.db import leases as leases_sql
from app.db.tables import Batch, Job, Pool, Worker
from app.domain.eligibility import WorkerView, why_no_job
from app.services.context import Yard
from app.services.eligibility import pool_rules, worker_view
from app.services.presence import hearing
from app.services.pulls import Leaves
from app.services.requirements import servable_keys


@dataclass(frozen=True, slots=True)
class Standing:
    """How a worker stands to its pool's cautious shards.

    `runs_one`: it holds one. `next_job` (of `batch`) is the one it may take, or make room for while it `holds_some`.
    """

    runs_one: bool = False
    holds_some: bool = False
    next_job: Job | None = None
    batch: Batch | None = None


def look(session: Session, yard: Yard, worker: Worker, view: WorkerView, leaves: Leaves, now: datetime) -> Standing:
    """Say how `worker` stands. Changes nothing and locks nothing."""
    if not cautious_sql.are_there(session):
        return Standing()
    if cautious_sql.runs_one(session, worker.id):
        return Standing(runs_one=True, holds_some=True)
    waiting = cautious_sql.waiting(session, worker.pool, now)
    if not waiting or not _may_run(session, worker):
        return Standing()
    holds_some = bool(leases_sql.live_of_worker(session, worker.id))
    mine = [(job, batch) for job, batch in waiting if job.requirement_key in servable_keys(batch, view) - leaves(batch)]
    if holds_some:  # what it was chosen for comes first: it takes no second one
        mine.sort(key=lambda found: found[0].cautious_worker_id != worker.id)
        mine = [(job, batch) for job, batch in mine if not _is_anothers(session, yard, worker, job, batch, now)]
    job, batch = mine[0] if mine else (None, None)
    return Standing(holds_some=holds_some, next_job=job, batch=batch)


def take(session: Session, worker: Worker, standing: Standing, now: datetime) -> Job | None:
    """Lock the shard of `standing`, and choose the worker for it while it holds something.

    None when another claim is at it, or was.
    """
    if standing.next_job is None or standing.batch is None:
        return None
    job = cautious_sql.take(session, standing.next_job.id or 0, chosen=standing.next_job.cautious_worker_id)
    if job is None or not standing.holds_some or job.cautious_worker_id == worker.id:
        return job
    job.cautious_worker_id = worker.id
    session.add(job)
    events.record(
        session,
        now=now,
        type="job.reserved",
        subject=job.batch_id,
        actor=f"worker:{worker.id}",
        org_id=standing.batch.org_id,
        data={"job": job.id, "number": job.number, "worker": worker.name},
    )
    return job


def _may_run(session: Session, worker: Worker) -> bool:
    """Tell whether a worker can run row by row, or nobody of its pool can: then it runs the shard as it knows to."""
    return worker.row_by_row or not cautious_sql.knows_rows(session, worker.pool)


def _is_anothers(session: Session, yard: Yard, worker: Worker, job: Job, batch: Batch, now: datetime) -> bool:
    """Tell whether another worker makes room for a shard, and could still take it once it has."""
    if job.cautious_worker_id in {None, worker.id}:
        return False
    other = session.get(Worker, job.cautious_worker_id)
    if other is None or other.pool != worker.pool:
        return False
    silence = hearing(session, yard, [other.pool], now).silence(other)
    view = worker_view(other, silence=silence, timing=yard.timing, held_batches=0)
    may_take = why_no_job(view, pool_rules(session.get(Pool, other.pool))) is None
    return may_take and job.requirement_key in servable_keys(batch, view)
