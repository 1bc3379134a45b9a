"""What holds of the stored state after every transaction of the services."""

from sqlmodel import select

from app.db import segments as segments_sql
from app.db.tables import Batch, Event, Job, Lease, Segment
from app.domain.jobs import ENDED, UNCOUNTED, ControlVerb, JobState
from app.domain.leases import LIVE
from app.domain.retention import Kept
from app.domain.rowsets import RowSet
from app.services.context import Yard


def assert_sound(yard: Yard) -> None:
    """Assert what holds after every transaction, whoever came before whom (PROTOCOL 1, 5)."""
    with yard.store.read() as session:
        jobs = list(session.exec(select(Job)))
        live_of: dict[int, int] = {}
        for found in session.exec(select(Lease)):
            if found.state in LIVE:
                live_of[found.job_id] = live_of.get(found.job_id, 0) + 1
        segments: dict[int, list[Segment]] = segments_sql.of_jobs(session, [job.id or 0 for job in jobs])
        damaged = set(session.exec(select(Event.subject).where(Event.type == "batch.damaged")))
        whole = set()
        for one in session.exec(select(Batch)):
            if one.kept in {Kept.ROWS, Kept.DAMAGED}:
                whole.add(one.id)
            counted = [job for job in jobs if job.batch_id == one.id and job.verb not in UNCOUNTED]
            assert one.live == sum(live_of.get(job.id or 0, 0) for job in counted)
            assert one.open_jobs == sum(job.state not in ENDED for job in counted)
            finalizers = [job for job in jobs if job.batch_id == one.id and job.verb == ControlVerb.FINALIZE]
            assert len(finalizers) == (one.finalizing_at is not None and one.kept != Kept.BATCH)
    for job in jobs:
        assert live_of.get(job.id or 0, 0) == (job.state == JobState.LEASED)
        if job.batch_id not in whole:
            continue
        done = RowSet()
        for segment in segments.get(job.id or 0, []):
            rows = RowSet.parse(segment.rows)
            assert done.isdisjoint(rows), f"doubled rows in shard {job.number}"
            assert len(rows) == segment.completed + segment.failed
            done |= rows
        assert str(done) == job.done_rows
        assert len(done - RowSet.span(job.first_row, job.rows)) == 0
        answered = sum(segment.completed for segment in segments.get(job.id or 0, []))
        if job.batch_id in damaged:
            assert job.completed <= answered
        else:
            assert job.state == JobState.FAILED or job.completed + job.failed == len(done)
            assert job.completed == answered
        assert job.completed + job.failed <= job.rows
