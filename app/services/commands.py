"""What an admin asks of a worker: to drain, to try again at once (DR-06, BK-04).

Stored on the worker, so nothing is lost with a message: the answers of its next heartbeat, poll and claim say it. A
hello makes a command void, because it was meant for the process before.
"""

from sqlmodel import Session

from app.db import locks
from app.db.tables import Worker
from app.domain.errors import NotFound
from app.domain.workers import WorkerState
from app.services import worker_views
from app.services.context import Caller, Yard
from app.services.sightings import record


def drain(yard: Yard, caller: Caller, id_or_name: str) -> str:
    """Ask a worker to finish what it has and leave; gives its id. Once is enough, and one that is gone stays so.

    Raises as `worker_views.find`.
    """

    def work(session: Session) -> str:
        worker = _locked(session, caller, id_or_name)
        if worker.state != WorkerState.GONE and worker.drain_requested_at is None:
            worker.drain_requested_at = worker.command_at = now = yard.store.now(session)
            session.add(worker)
            record(session, worker, "worker.drain_requested", now, {}, actor=caller.actor)
        return worker.id

    return yard.store.run(work)


def reset(yard: Yard, caller: Caller, id_or_name: str) -> str:
    """Ask a worker to end its back-off and call at once; gives its id. Raises as `worker_views.find`."""

    def work(session: Session) -> str:
        worker = _locked(session, caller, id_or_name)
        worker.reset_requested_at = worker.command_at = now = yard.store.now(session)
        session.add(worker)
        record(session, worker, "worker.reset_requested", now, {}, actor=caller.actor)
        return worker.id

    return yard.store.run(work)


def _locked(session: Session, caller: Caller, id_or_name: str) -> Worker:
    worker = locks.worker(session, worker_views.find(session, caller, id_or_name).id)
    if worker is None:
        raise NotFound(f"no worker {id_or_name!r}", code="worker_not_found", param="id")
    return worker
