"""A worker is heard of: what its row then says (PH-03, PH-04, R-06)."""

from collections.abc import Mapping
from datetime import datetime

from sqlmodel import Session

from app.db import events
from app.db.tables import Worker
from app.domain.workers import Phase, WorkerState, project


def note_seen(session: Session, worker: Worker, phase: Phase | None, invocations: int, now: datetime) -> None:
    """Write phase, state and the time of a sign of life on a worker that is locked; one event for each step."""
    before, was_offline = worker.state, worker.offline_at is not None
    worker.phase, worker.state = phase, project(WorkerState(worker.state), phase)
    worker.current_invocations = invocations
    worker.last_seen_at, worker.offline_at = now, None
    session.add(worker)
    if worker.state != before:
        record(session, worker, f"worker.{worker.state}", now, {"from": before})
    if was_offline:
        record(session, worker, "worker.online", now, {})


def record(
    session: Session,
    worker: Worker,
    kind: str,
    now: datetime,
    data: Mapping[str, object],
    *,
    actor: str | None = None,
) -> None:
    """Record an event of a worker, by itself unless somebody else did it."""
    events.record_all(session, [of_worker(worker, kind, data, actor=actor)], now=now)


def of_worker(worker: Worker, kind: str, data: Mapping[str, object], *, actor: str | None = None) -> events.Recorded:
    """Make an event of a worker."""
    return events.Recorded(
        type=kind,
        subject=worker.id,
        actor=actor or f"worker:{worker.id}",
        org_id=worker.org_id,
        data={"name": worker.name, **data},
    )
