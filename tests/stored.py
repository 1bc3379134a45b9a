"""What the database holds, as tests of the services ask for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlmodel import select

from app.db.tables import Batch, Event, Job, Lease, Worker
from app.domain.jobs import ControlVerb, JobKind
from app.domain.leases import LeaseState
from app.services.context import Yard


def batch(yard: Yard, batch_id: str) -> Batch:
    with yard.store.read() as session:
        return session.exec(select(Batch).where(Batch.id == batch_id)).one()


def shards(yard: Yard, batch_id: str) -> list[Job]:
    with yard.store.read() as session:
        return list(
            session.exec(select(Job).where(Job.batch_id == batch_id, Job.kind == JobKind.SHARD).order_by("number"))
        )


def control_job(yard: Yard, batch_id: str, verb: ControlVerb) -> Job | None:
    with yard.store.read() as session:
        return session.exec(
            select(Job).where(Job.batch_id == batch_id, Job.kind == JobKind.CONTROL, Job.verb == verb)
        ).first()


def lease(yard: Yard, lease_id: int) -> Lease:
    with yard.store.read() as session:
        return session.exec(select(Lease).where(Lease.id == lease_id)).one()


def worker(yard: Yard, worker_id: str) -> Worker:
    with yard.store.read() as session:
        return session.exec(select(Worker).where(Worker.id == worker_id)).one()


def events(yard: Yard, subject: str) -> list[str]:
    """The types of a subject's events, in order."""
    with yard.store.read() as session:
        return list(session.exec(select(Event.type).where(Event.subject == subject).order_by("seq")))


def states(yard: Yard, *lease_ids: int) -> list[LeaseState]:
    """The states of leases."""
    return [LeaseState(lease(yard, lease_id).state) for lease_id in lease_ids]


@contextmanager
def statements(yard: Yard) -> Iterator[list[str]]:
    """What is asked of the database meanwhile."""
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    event.listen(yard.store.engine, "before_cursor_execute", note)
    yield asked
    event.remove(yard.store.engine, "before_cursor_execute", note)
