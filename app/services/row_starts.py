"""A worker names a row that it is about to start: from then on its loss counts, and in a cautious shard is that row's.

Source: PROTOCOL 5.
"""

from sqlmodel import Session

from app.db import locks
from app.db.tables import Job
from app.domain.errors import BadRequest
from app.domain.leases import LeaseState
from app.domain.rowsets import RowSet
from app.schemas.claims import RowStart, RowStartAnswer, RowStartVerdict
from app.services.calling import checked_worker
from app.services.context import Caller, Yard
from app.services.leases import note_call

_VERDICTS = {LeaseState.HELD: RowStartVerdict.START, LeaseState.STOPPING: RowStartVerdict.STOP}


def start_row(yard: Yard, caller: Caller, start: RowStart) -> RowStartAnswer:
    """Keep the row's number under its lease, and answer after the commit: the row starts only then.

    A lease that is told to stop, or has ended, names no row. Raises NotFound, Conflict `superseded`, and BadRequest for
    a row that is not one of the shard's open ones.
    """

    def work(session: Session) -> RowStartVerdict:
        checked_worker(session, caller, start.worker_id, start.boot_id, lock=False)
        lease = locks.leases(session, [start.lease_id], worker_id=start.worker_id).get(start.lease_id)
        verdict = _VERDICTS.get(LeaseState(lease.state), RowStartVerdict.STALE) if lease else RowStartVerdict.STALE
        if lease is None or verdict is not RowStartVerdict.START:
            return verdict
        # Not locked: whoever changes it holds a lock on its live lease first.
        job = session.get_one(Job, lease.job_id)
        if start.row not in RowSet.span(job.first_row, job.rows) - RowSet.parse(job.done_rows):
            raise BadRequest(f"row {start.row} is no open row of lease {start.lease_id}", code="invalid_row")
        lease.running_row, lease.unstarted = start.row, False
        session.add(lease)
        return verdict

    verdict = yard.store.run(work)
    with yard.store.read() as session:
        worker = checked_worker(session, caller, start.worker_id, start.boot_id, lock=False)
    note_call(yard, worker, start.boot_id)
    return RowStartAnswer(verdict=verdict)
