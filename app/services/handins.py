"""Taking finished rows: one call, one blob and one transaction for all shards of a batch on a worker (PROTOCOL 5)."""

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session

from app.db import blobs as blobs_sql
from app.db import events, locks
from app.db import leases as leases_sql
from app.db import segments as segments_sql
from app.db.tables import Batch, Job, Lease, Segment, Worker
from app.domain.errors import TryLater
from app.domain.jobs import LeaseEnd
from app.domain.leases import LIVE, LeaseState
from app.domain.rowsets import RowSet
from app.schemas.segments import EndVerdict, HandInAnswer, HandInHeader, Part, PartVerdict
from app.services import blobs, canary
from app.services.calling import own_worker
from app.services.context import Caller, Yard
from app.services.endings import Ending, end_leases
from app.services.handin_bodies import Body, PartBytes, Use, Written, check_header, uses_of
from app.services.leases import note_call, note_stale_report, ring_after


class HandIn:
    """One call: judged by its header before a byte of its body is taken. Safe to repeat to the letter.

    Authorised by worker and lease, not by boot: a restarting agent sends its spool before it says hello (PROTOCOL 3).
    """

    def __init__(self, yard: Yard, caller: Caller, header: HandInHeader) -> None:
        """Raises NotFound for a worker that is not the caller's, BadRequest for a header that cannot be."""
        check_header(header)
        self._yard = yard
        self._header = header
        with yard.store.read() as session:
            self._worker = own_worker(caller, session.get(Worker, header.worker_id), header.worker_id)
            uses = _uses(session, header)
        self.body = Body(yard, self._worker.org_id, header.batch_id, header.parts, uses)

    def finish(self, *, boot_id: str | None) -> HandInAnswer:
        """Store the parts and end the leases named in the header; a verdict a lease.

        Raises BadRequest when the bytes are not what the header says: then nothing of it is stored.
        """
        yard, worker, header, parts = self._yard, self._worker, self._header, self.body.parts
        written = self.body.finish()
        if header.first_rows is not None and header.first_rows.kind is None:
            canary.let_run(yard, worker.id, header.batch_id)  # first, while the worker's leases have not ended
        answer, batch = yard.store.run(lambda session: _store(session, yard, worker, header, parts, written))
        self.body.keep()
        for p in parts:
            yard.counters.handed_in(worker.pool, p.part, answer.parts[p.part.lease_id])
        if header.first_rows is not None:
            has_rows = not {PartVerdict.STORED, PartVerdict.DUPLICATE}.isdisjoint(answer.parts.values())
            found = canary.hear(yard, worker, header.batch_id, header.first_rows, has_rows=has_rows)
            answer = answer.model_copy(update=found)
        if batch is not None:
            ring_after(yard, batch, batch.id)
        again = yard.pace.hand_in(yard.limits.segment_seconds)
        work = note_call(yard, worker, boot_id)
        return answer.model_copy(update={"work": work, "next_segment_seconds": again})


def hand_in(
    yard: Yard, caller: Caller, header: HandInHeader, body: bytes, *, boot_id: str | None = None
) -> HandInAnswer:
    """Take a hand-in whose bytes are all there. Raises as `HandIn` does."""
    arriving = HandIn(yard, caller, header)
    try:
        arriving.body.feed(body)
        return arriving.finish(boot_id=boot_id)
    except BaseException:
        arriving.body.abort()
        raise


def _uses(session: Session, header: HandInHeader) -> dict[int, Use]:
    """Look at the leases of the parts without a lock; the fence is in `_store`.

    A lease that has ended has ended for good, and what was stored under it is seen by the second query, not before.
    """
    if not header.parts:
        return {}
    leases = leases_sql.states_of(
        session, [part.lease_id for part in header.parts], worker_id=header.worker_id, batch_id=header.batch_id
    )
    live = {lease_id for lease_id, state in leases.items() if state in LIVE}
    ended = [(part.lease_id, part.seq) for part in header.parts if part.lease_id in leases.keys() - live]
    return uses_of(header.parts, live=live, known=segments_sql.by_sequence(session, ended))


def _store(
    session: Session,
    yard: Yard,
    worker: Worker,
    header: HandInHeader,
    checked: Sequence[PartBytes],
    written: Written | None,
) -> tuple[HandInAnswer, Batch | None]:
    ids = {c.part.lease_id for c in checked} | {end.lease_id for end in header.ends}
    leases = {
        lease_id: lease
        for lease_id, lease in locks.leases(session, ids, worker_id=worker.id).items()
        if lease.batch_id == header.batch_id
    }
    now = yard.store.now(session)
    live = {lease_id: lease for lease_id, lease in leases.items() if lease.state in LIVE}
    jobs = locks.jobs(session, [lease.job_id for lease in live.values()])
    known = segments_sql.by_sequence(
        session, [(c.part.lease_id, c.part.seq) for c in checked if c.part.lease_id in leases]
    )
    key = written.key if written is not None else ""
    if written is not None and not blobs.mark_put(session, key, written.stored, now):
        raise TryLater("this hand-in was collected as left over before it was stored: send it again")
    parts = {
        c.part.lease_id: _store_part(session, c, known.get((c.part.lease_id, c.part.seq)), live, jobs, key, now)
        for c in checked
    }
    if written is not None and PartVerdict.STORED not in parts.values():
        blobs_sql.mark_unreferenced(session, key, now)
    ends, batch = _end(session, yard, worker, header, leases, jobs, now)
    stale = [i for i, verdict in {**parts, **ends}.items() if verdict in {PartVerdict.STALE, EndVerdict.STALE}]
    for lease_id in stale:
        if lease_id in leases:
            note_stale_report(session, lease_id, leases[lease_id], worker, now=now, data={"part": lease_id in parts})
    if unknown := [lease_id for lease_id in stale if lease_id not in leases]:
        # Ids that anybody can make up: counted, or one call could write thousands of events.
        note_stale_report(session, unknown[0], None, worker, now=now, data={"unknown": len(unknown)})
    answer = HandInAnswer(
        parts=parts,
        ends=ends,
        stop=[i for i, lease in live.items() if lease.state == LeaseState.STOPPING],
    )
    return answer, batch


def _store_part(
    session: Session,
    checked: PartBytes,
    known: Segment | None,
    live: dict[int, Lease],
    jobs: dict[int, Job],
    key: str,
    now: datetime,
) -> PartVerdict:
    part = checked.part
    lease = live.get(part.lease_id)
    if known is not None:
        # Asked before the fence: the lease may have ended with the very call whose answer was lost.
        return PartVerdict.DUPLICATE if known.digest == checked.digest else PartVerdict.CONFLICT
    if lease is None or checked.use is not Use.STORE:
        return PartVerdict.STALE
    job = jobs[lease.job_id]
    done = RowSet.parse(job.done_rows)
    own = RowSet.span(job.first_row, job.rows)
    if len(checked.rows - own) or not done.isdisjoint(checked.rows):
        return PartVerdict.CONFLICT
    lease.unstarted = False
    if lease.running_row is not None and lease.running_row in checked.rows:
        lease.running_row = None  # it did its worker no harm
    session.add(lease)
    job.done_rows = str(done | checked.rows)
    _count(job, part)
    session.add(job)
    session.add(
        Segment(
            lease_id=part.lease_id,
            job_id=lease.job_id,
            batch_id=lease.batch_id,
            seq=part.seq,
            rows=part.rows,
            completed=part.completed,
            failed=part.failed,
            digest=checked.digest,
            blob_key=key,
            start=checked.start,
            length=part.length,
            stored_at=now,
            txid=events.xid(session),
        )
    )
    return PartVerdict.STORED


def _count(job: Job, part: Part) -> None:
    usage = part.usage
    job.completed += part.completed
    job.failed += part.failed
    job.input_tokens += usage.input_tokens
    job.cached_tokens += usage.cached_tokens
    job.output_tokens += usage.output_tokens
    job.reasoning_tokens += usage.reasoning_tokens
    job.total_tokens += usage.total_tokens
    job.answers_off_format += min(part.off_format, part.completed)
    job.answers_other_model += min(part.other_model, part.completed)


def _end(
    session: Session,
    yard: Yard,
    worker: Worker,
    header: HandInHeader,
    leases: dict[int, Lease],
    jobs: dict[int, Job],
    now: datetime,
) -> tuple[dict[int, EndVerdict], Batch | None]:
    verdicts: dict[int, EndVerdict] = {}
    endings: list[Ending] = []
    for end in sorted(header.ends, key=lambda e: e.lease_id):
        lease = leases.get(end.lease_id)
        if lease is not None and lease.report_request == end.request_id:
            verdicts[end.lease_id] = EndVerdict.ENDED
        elif lease is None or lease.state not in LIVE:
            verdicts[end.lease_id] = EndVerdict.STALE
        elif len(RowSet.parse(jobs[lease.job_id].done_rows)) < jobs[lease.job_id].rows:
            verdicts[end.lease_id] = EndVerdict.INCOMPLETE
        else:
            lease.report_request = end.request_id
            endings.append(Ending(lease, LeaseEnd.DONE))
            verdicts[end.lease_id] = EndVerdict.ENDED
    if not endings:
        return verdicts, None
    session.flush()
    pool = leases_sql.pool_of(session, header.batch_id)
    batch = end_leases(
        session,
        endings,
        now=now,
        limits=yard.limits,
        max_losses=pool.max_losses if pool is not None else None,
        actor=f"worker:{worker.id}",
    )
    return verdicts, batch
