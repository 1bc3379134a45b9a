"""Taking what a worker tells of a pull, for people and for the claims of others (A-06, B-28)."""

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import events
from app.db import leases as leases_sql
from app.db.tables import Worker
from app.domain.pulls import Pull, PullStatus, after
from app.schemas.pulls import ModelProgress, PullInfo
from app.services.calling import checked_worker
from app.services.context import Caller, Yard
from app.services.eligibility import told_pulls

KEPT = 8
"""Pulls of a worker that have ended and are still known."""
_EVENTS = {
    PullStatus.PULLING: "model.pulling",
    PullStatus.PULLED: "model.pulled",
    PullStatus.FAILED: "model.pull_failed",
    PullStatus.CANCELLED: "model.pull_cancelled",
}


def note(yard: Yard, caller: Caller, report: ModelProgress) -> None:
    """Keep how far a pull is; its begin and its end are events of the worker and of each batch it is for.

    Raises NotFound, Conflict `superseded`.
    """

    def work(session: Session) -> None:
        worker = checked_worker(session, caller, report.worker_id, report.boot_id, lock=True)
        now = yard.store.now(session)
        worker.last_seen_at = now
        session.add(worker)
        known = {pull.number: pull for pull in told_pulls(worker)}
        before = known.get(report.number)
        if before is None and report.number < min(known, default=0):
            return  # of one that is forgotten
        found = after(before.to_domain() if before is not None else None, report.to_domain())
        if found is None:
            return
        known[found.number] = PullInfo.of(found, at=now.timestamp())
        worker.pulls = [pull.model_dump(mode="json") for pull in _kept(known)]
        if before is None or found.ended:
            _record(session, worker, found, now)

    yard.store.run(work)


def _kept(known: dict[int, PullInfo]) -> list[PullInfo]:
    """Give those that go on and the last that ended, in order."""
    ended = [number for number in sorted(known) if known[number].status is not PullStatus.PULLING]
    return [known[number] for number in sorted(known) if number not in ended[:-KEPT]]


def _record(session: Session, worker: Worker, pull: Pull, now: datetime) -> None:
    data: dict[str, object] = {"worker": worker.name, "runtime": pull.runtime, "model": pull.model}
    if pull.total:
        data["bytes"] = pull.total
    if pull.error:
        data["error"] = pull.error
    for subject, org_id in ((worker.id, worker.org_id), *_waiting(session, worker, pull.model)):
        events.record(
            session,
            now=now,
            type=_EVENTS[pull.status],
            subject=subject,
            actor=f"worker:{worker.id}",
            org_id=org_id,
            data=data,
        )


def _waiting(session: Session, worker: Worker, model: str) -> Sequence[tuple[str, str]]:
    """Name the batches with this model that the worker holds shards of, each with its org."""
    held = (batches_sql.by_id(session, batch_id) for batch_id in leases_sql.batches_of_worker(session, worker.id))
    return [(batch.id, batch.org_id) for batch in held if batch is not None and model in batch.models]
