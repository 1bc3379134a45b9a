"""Which worker calls: a row of the caller's own, and the boot that has its name now (PROTOCOL 3, TK-02)."""

import structlog
from sqlmodel import Session

from app.db import locks
from app.db.tables import Worker
from app.domain.errors import Conflict, NotFound
from app.domain.workers import Transport
from app.services.context import Caller, Yard


def calling_worker(yard: Yard, caller: Caller, worker_id: str) -> Worker:
    """Read the worker that calls. Raises NotFound for one that is not the caller's."""
    with yard.store.read() as session:
        return own_worker(caller, session.get(Worker, worker_id), worker_id)


def checked_worker(session: Session, caller: Caller, worker_id: str, boot_id: str | None, *, lock: bool) -> Worker:
    """Read (or lock) the caller's worker and check that this boot is the current one (PROTOCOL 3)."""
    found = locks.worker(session, worker_id) if lock else session.get(Worker, worker_id)
    return checked(caller, found, worker_id, boot_id)


def checked(caller: Caller, found: Worker | None, worker_id: str, boot_id: str | None) -> Worker:
    """Give a worker that was read when it is the caller's, and this boot the current one. Raises as above."""
    worker = own_worker(caller, found, worker_id)
    if boot_id is not None and worker.boot_id != boot_id:
        raise Conflict(
            f"worker {worker.name} was started again elsewhere; this process is superseded", code="superseded"
        )
    return worker


def own_worker(caller: Caller, worker: Worker | None, worker_id: str) -> Worker:
    """Return the worker when the caller may act for it; the rest of the call names it in the log.

    A key acts for GPU workers of its org and, when it is a single-worker key, for the one of its name (TK-02). Control
    workers belong to the operator's org, too, but they call in process and no key acts for them: its holder could end
    control work unseen. Raises NotFound for every other worker, and for None.
    """
    may_act = (
        worker is not None
        and worker.org_id == caller.org_id
        and (worker.transport != Transport.CONTROL or caller.in_process)
        and (worker.name == caller.name or not caller.single_worker)
    )
    if worker is None or not may_act:
        raise NotFound(f"no worker {worker_id!r} is registered with this key", code="no_worker")
    structlog.contextvars.bind_contextvars(worker=worker.name, worker_id=worker.id)
    return worker
