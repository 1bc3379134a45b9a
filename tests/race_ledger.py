"""The accounts beside a machine of races: what a step may have changed of leases, jobs and batches, and what it must.

`History` knows the tables of states; this knows the rules of PROTOCOL 1 to 5 that no table can say. A step tells
beforehand what it allows (`may_renew`, `postponed`, `failed`); whatever else has changed when `look` comes is a defect.
"""

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import select

from app.db import presence as presence_sql
from app.db.tables import Batch, Job, Lease, Worker
from app.domain.batches import ENDED as BATCH_ENDED
from app.domain.batches import BatchState, Outcome
from app.domain.jobs import ENDED, ControlVerb, JobKind, JobState
from app.domain.leases import LIVE, LeaseState
from app.domain.workers import WorkerState
from app.services.context import Yard

_MAY_COME_LATE = {"spooled"}
"""A goodbye may name a lease that has ended meanwhile."""


class Ledger:
    """One a run. `look` after every step."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._leases: dict[int, Lease] = {}
        self._outcomes: dict[str, str | None] = {}
        self._renewable: set[int] = set()
        self._gap = timedelta()
        self._failures: Counter[int] = Counter()

    # --- what a step says of itself

    def may_renew(self, ids: Collection[int]) -> None:
        """A beat or a hello lists these leases."""
        self._renewable |= set(ids)

    def postponed(self, gap: timedelta | None) -> None:
        """The control plane was away for so long, which counts against nobody."""
        self._gap += gap or timedelta()

    def failed(self, lease_id: int) -> None:
        """A failure report was taken: an attempt of its job, once."""
        self._failures[self.lease(lease_id).job_id] += 1

    # --- what a step may ask

    def lease(self, lease_id: int) -> Lease:
        with self._yard.store.read() as session:
            return session.exec(select(Lease).where(Lease.id == lease_id)).one()

    def live(self) -> dict[int, Lease]:
        with self._yard.store.read() as session:
            return {found.id or 0: found for found in session.exec(select(Lease)) if found.state in LIVE}

    def now(self) -> datetime:
        with self._yard.store.read() as session:
            return self._yard.store.now(session)

    def due(self) -> set[int]:
        """The leases that a sweep has to end: overdue, or of a worker that said goodbye; none while nobody listens."""
        with self._yard.store.read() as session:
            now, tick = self._yard.store.now(session), presence_sql.the_tick(session)
            gone = {one.id for one in session.exec(select(Worker)) if one.state == WorkerState.GONE}
        if tick is None or (now - tick.at).total_seconds() > self._yard.timing.grace_seconds:
            return set()
        return {
            lease_id
            for lease_id, found in self.live().items()
            if found.expires_at < now or (found.worker_id in gone and not found.spooled)
        }

    # --- the books

    def look(self) -> None:
        """Assert that nothing changed but what the step may change."""
        with self._yard.store.read() as session:
            leases = {found.id or 0: found for found in session.exec(select(Lease))}
            jobs = {found.id or 0: found for found in session.exec(select(Job))}
            batches = {found.id: found for found in session.exec(select(Batch))}
        for lease_id, found in leases.items():
            before = self._leases.get(lease_id)
            if before is None:
                self._granted(found, jobs[found.job_id])
            elif before.state not in LIVE:
                assert _told(found) == _told(before), f"lease {lease_id} had ended, and has changed"
            else:
                self._moved(before, found)
        for job in jobs.values():
            if job.kind == JobKind.SHARD:
                self._counted(job, [found for found in leases.values() if found.job_id == job.id])
        for batch in batches.values():
            self._ends_once(batch)
            _is_over(batch, [job for job in jobs.values() if job.batch_id == batch.id], leases.values())
        self._leases = leases
        self._outcomes = {batch.id: batch.outcome for batch in batches.values()}
        self._renewable, self._gap = set(), timedelta()

    def _granted(self, lease: Lease, job: Job) -> None:
        assert lease.expires_at == self._yard.timing.lease_end(lease.granted_at) + self._gap
        if job.verb != ControlVerb.FINALIZE:
            assert self._outcomes.get(lease.batch_id) is None, "a lease was granted of a batch that was told to end"

    def _moved(self, before: Lease, after: Lease) -> None:
        """A live lease ends later only when it was held and listed, or when nobody could have heard its worker."""
        expected = before.expires_at + self._gap
        if after.id in self._renewable and before.state == LeaseState.HELD:
            return
        assert after.renewed_at == before.renewed_at, f"lease {after.id} was renewed, and nobody asked for it"
        if (before.state, after.state) == (LeaseState.HELD, LeaseState.STOPPING):
            assert after.expires_at <= expected, "a stop gives no time"
        elif after.state in LIVE:
            assert after.expires_at == expected, f"the end of lease {after.id} was moved"

    def _counted(self, job: Job, leases: Collection[Lease]) -> None:
        """Reported failures are attempts, lost workers losses, and nothing else is either (R-04, R-21)."""
        limits = self._yard.limits
        lost = [found for found in leases if found.state == LeaseState.EXPIRED and not found.unstarted]
        assert (job.attempts, job.losses) == (self._failures[job.id or 0], len(lost)), f"the tally of job {job.id}"
        spent = job.attempts >= limits.max_attempts or job.losses >= limits.max_losses
        if job.state == JobState.FAILED:
            assert spent
        elif job.state in {JobState.QUEUED, JobState.LEASED}:
            assert not spent

    def _ends_once(self, batch: Batch) -> None:
        before = self._outcomes.get(batch.id)
        assert before in {None, batch.outcome}, f"the outcome of {batch.id} was {before} and is {batch.outcome}"


def _told(lease: Lease) -> dict[str, Any]:
    return lease.model_dump(exclude=_MAY_COME_LATE)


def _is_over(batch: Batch, jobs: Collection[Job], leases: Collection[Lease]) -> None:
    """A batch is finalized once every other job of it has ended, and nobody is at one."""
    work = {job.id: job for job in jobs if job.verb != ControlVerb.FINALIZE}
    if batch.state == BatchState.FINALIZING or batch.state in BATCH_ENDED:
        assert all(job.state in ENDED for job in work.values()), f"{batch.id} is {batch.state} and has open jobs"
        assert not [found.id for found in leases if found.job_id in work and found.state in LIVE]
    if batch.outcome == Outcome.COMPLETED:
        assert all(job.state != JobState.CANCELLED for job in work.values())
