"""The first rows of a batch, judged by all of its workers: it stops early when they fail alike (decision 22).

A worker that has the word `canary_rows` runs so many rows first. When one is completed it goes on by itself. When all
of them failed alike it waits and says so with its hand-ins, until it is answered: `stop`, or `goes_on`. The batch is
stopped when no row of it is completed and every worker that holds a lease of it says the same; a worker that says
nothing at all is waited for no longer than one that has died.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import locks
from app.db import stops as stops_sql
from app.db.tables import Lease, Worker
from app.domain.batches import CLAIMABLE
from app.domain.first_rows import CODE, failed_alike
from app.schemas.segments import FirstRows
from app.services import stops
from app.services.context import Yard
from app.services.eligibility import told
from app.services.first_rows import rows_first


def let_run(yard: Yard, worker_id: str, batch_id: str) -> None:
    """Take the word of a worker on a batch that its first rows do not fail alike."""

    def work(session: Session) -> None:
        if any(lease.worker_id == worker_id for lease in locks.live_of_batch(session, batch_id)):
            stops_sql.let_run(session, batch_id)

    yard.store.run(work)


def hear(yard: Yard, worker: Worker, batch_id: str, first: FirstRows, *, has_rows: bool) -> dict[str, object]:
    """Hear that the first rows of a batch failed on a worker, after they were stored; gives its answer's fields.

    Nothing is answered while other workers of the batch have not said what they met. `has_rows`: the word came with
    rows that were the worker's to hand in, so it counts even when its last lease ended with them.
    """
    if first.kind is None:
        return {"goes_on": True}
    kind = first.kind

    def decide(session: Session) -> tuple[bool, list[int] | None]:
        leases = locks.live_of_batch(session, batch_id)
        mine = [lease for lease in leases if lease.worker_id == worker.id]
        batch = batches_sql.by_id(session, batch_id)
        if batch is None or not (mine or has_rows) or batch.outcome is not None or batch.state not in CLAIMABLE:
            return False, None
        now = yard.store.now(session)
        _note(session, mine, kind, now)
        others = _others(leases, worker.id)
        if (
            not rows_first(session, batch)
            # Several kinds of failure are no failure of the whole batch.
            or any(said is not None and said != kind for said in others)
        ):
            batch.canary_over = True
            session.add(batch)
            return True, None
        since = min((lease.failing_at or now for lease in mine), default=now)
        if None in others and now - since < timedelta(seconds=told(worker, yard.timing).toleration_seconds):
            return False, None
        what = failed_alike(rows=first.rows, kind=kind, message=first.message)
        error: dict[str, object] = {"code": CODE, "message": what, "param": None, "line": first.row + 1}
        won = stops.first_rows_failed(session, batch, error, now, live=len(leases), actor=f"worker:{worker.id}")
        return False, [lease.id or 0 for lease in mine] if won else None

    goes_on, stop = yard.store.run(decide)
    if stop is None:
        return {"goes_on": goes_on}
    stops.spread(yard, batch_id)
    return {"stop": stop}


def _note(session: Session, leases: Sequence[Lease], kind: str, now: datetime) -> None:
    since = min((lease.failing_at for lease in leases if lease.failing_at is not None), default=now)
    for lease in leases:
        lease.failing, lease.failing_at = kind, since
        session.add(lease)
    session.flush()


def _others(leases: Sequence[Lease], worker_id: str) -> set[str | None]:
    """Give what each other worker says; None for one that says nothing."""
    said: dict[str, str | None] = {}
    for lease in leases:
        if lease.worker_id != worker_id:
            said[lease.worker_id] = said.get(lease.worker_id) or lease.failing
    return set(said.values())
