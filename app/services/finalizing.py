"""Finalizing: write the output and the error file, then files, counts and the final state in one transaction.

Two finalizers cannot both win: the last transaction is fenced by the lease and guarded by the state `finalizing`.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from sqlmodel import Session

from app.blobs.store import BlobWriter, Stored
from app.db import batches as batches_sql
from app.db import locks
from app.db import orgs as orgs_sql
from app.db.batches import Tally
from app.db.inputs import input_blob
from app.db.tables import Batch, Blob, File, Job
from app.domain.batches import BatchState, Outcome
from app.domain.contents import ContentKind
from app.domain.jobs import LeaseEnd
from app.domain.leases import LIVE
from app.domain.row_failures import SHOWN_KINDS, Failure, Failures, failed_row
from app.domain.rowsets import RowSet
from app.services import blobs, damage, first_rows, ids, missing
from app.services.context import Yard
from app.services.endings import Ending, end_leases
from app.services.moves import move, outcome_of
from app.services.result_lines import result_lines
from app.services.shard_lines import Findings

PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Written:
    """A finished content: its blob, what it holds, and its lines."""

    key: str
    stored: Stored
    lines: int


@dataclass(frozen=True, slots=True)
class _Files:
    """What there is to refer to; None where a file would be empty (OPENAI_CONTRACT 1.2)."""

    output: _Written | None = None
    error: _Written | None = None
    reasons: Sequence[Failure] = ()
    """Why rows are in the error file, most frequent first."""


class _Content:
    """Lines on their way into one blob, written many at a time: one write a line costs as much as finding the lines.

    The blob begins with its first lines: most batches have no errors.
    """

    def __init__(self, yard: Yard, org_id: str, stack: ExitStack) -> None:
        self._yard = yard
        self._org_id = org_id
        self._stack = stack
        self._begun: tuple[str, BlobWriter] | None = None
        self._lines = 0
        self._held: list[bytes] = []
        self._held_bytes = 0

    def add(self, lines: list[bytes]) -> None:
        self._held += lines
        self._held_bytes += sum(map(len, lines))
        self._lines += len(lines)
        if self._held_bytes >= PIECE_BYTES:
            self._write()

    def commit(self) -> _Written | None:
        if not self._lines:
            return None
        key, writer = self._write()
        return _Written(key, writer.commit(), self._lines)

    def _write(self) -> tuple[str, BlobWriter]:
        if self._begun is None:
            key = blobs.begin(self._yard, self._org_id)
            self._begun = key, self._stack.enter_context(self._yard.blobs.writer(key))
        self._begun[1].write(b"\n".join([*self._held, b""]))
        self._held.clear()
        self._held_bytes = 0
        return self._begun


def finalize(yard: Yard, lease_id: int, batch_id: str) -> Batch | None:
    """Finalize under a control lease; None when the lease was lost meanwhile.

    Raises BlobError (try later). At the last of its tries what is missing costs its rows, and the batch ends.
    """
    with yard.store.read() as session:
        batch = batches_sql.by_id(session, batch_id)
        findings = Findings(missing_ok=missing.is_last_try(session, lease_id))
    if batch is None:
        raise LookupError(f"there is no batch {batch_id}")
    # A batch that ended before it was validated has no rows and no files (PROTOCOL 5).
    files = _write(yard, batch, findings) if batch.validated_at is not None else _Files()
    findings.damaged_inputs += _untold(yard, batch, findings)
    line = first_rows.line_of_first(yard, batch)
    ended = yard.store.run(lambda session: _conclude(session, yard, lease_id, batch_id, files, findings, line))
    if ended is not None:
        for _ in findings.segments:
            yard.counters.damaged(ContentKind.SEGMENT)
        if findings.damaged_inputs:
            yard.counters.damaged(ContentKind.INPUT)
    return ended


def _untold(yard: Yard, batch: Batch, findings: Findings) -> list[int]:
    """Give the rows of shards that failed for their input, unless damage of it is recorded: it is gone then."""
    if not findings.failed_inputs:
        return []
    with yard.store.read() as session:
        blob = session.get_one(Blob, input_blob(session, batch.id))
    return findings.failed_inputs if blob.damaged_at is None else []


def _write(yard: Yard, batch: Batch, findings: Findings) -> _Files:
    with ExitStack() as stack:
        output, error = _Content(yard, batch.org_id, stack), _Content(yard, batch.org_id, stack)
        failures = Failures()
        for found in result_lines(yard, batch, findings):
            (output if found.completed else error).add(found.lines)
            if not found.completed:
                for line in found.lines:
                    failures.add(failed_row(line))
        return _Files(output.commit(), error.commit(), failures.most_frequent(SHOWN_KINDS))


def _conclude(
    session: Session,
    yard: Yard,
    lease_id: int,
    batch_id: str,
    files: _Files,
    findings: Findings,
    first_line: int | None,
) -> Batch | None:
    lease = locks.leases(session, [lease_id]).get(lease_id)
    if lease is None or lease.state not in LIVE:
        return None
    _recount(session, locks.jobs(session, [lease.job_id, *findings.recounted]), findings)
    batch = locks.batch(session, batch_id)
    if batch is None or batch.state != BatchState.FINALIZING:
        raise LookupError(f"batch {batch_id} is not being finalized")
    now = yard.store.now(session)
    batch.output_file_id = _file(session, batch, files.output, "output", now)
    batch.error_file_id = _file(session, batch, files.error, "error", now)
    tally = batches_sql.tallies(session, [batch_id]).get(batch_id, Tally())
    _count(batch, files, findings)
    batch.row_errors = [
        {"code": kind, "count": rows, "message": message or None} for kind, message, rows in files.reasons
    ]
    batch.usage = asdict(tally.usage)
    batch.answers_off_format, batch.answers_other_model = tally.answers_off_format, tally.answers_other_model
    if outcome_of(batch) is Outcome.FAILED:
        batch.errors = first_rows.concluded(batch, line=first_line)
    session.add(batch)
    session.flush()
    actor = f"worker:{lease.worker_id}"
    _note_damage(session, batch, findings, now=now, actor=actor)
    data = {"completed": batch.completed, "failed": batch.failed, "total": batch.total}
    end = BatchState((outcome_of(batch) or Outcome.COMPLETED).value)
    move(session, batch, end, now=now, actor=actor, data=data)
    return end_leases(
        session, [Ending(lease, LeaseEnd.DONE)], now=now, limits=yard.limits, max_losses=None, actor=actor
    )


def _recount(session: Session, jobs: Mapping[int, Job], findings: Findings) -> None:
    """Have the shards count the lines that were written, where they counted rows whose contents are damaged or gone."""
    for job_id, count in findings.recounted.items():
        jobs[job_id].completed, jobs[job_id].failed = count
        session.add(jobs[job_id])
    session.flush()


def _count(batch: Batch, files: _Files, findings: Findings) -> None:
    """Count a batch by the lines of its files. Raises LookupError where that is not one line a row."""
    completed, others = (content.lines if content is not None else 0 for content in (files.output, files.error))
    if completed + others != batch.total:
        raise LookupError(f"{completed} + {others} lines were written for the {batch.total} rows of {batch.id}")
    batch.completed, batch.failed = completed, others - findings.not_run


def _note_damage(session: Session, batch: Batch, findings: Findings, *, now: datetime, actor: str) -> None:
    if findings.damaged_results:
        rows = RowSet.of(findings.damaged_results)
        what = f"{len(rows)} stored results are damaged or gone"
        damage.record(session, batch, what, now=now, actor=actor, rows=rows, segments=findings.segments)
    if findings.damaged_inputs:
        rows = RowSet.of(findings.damaged_inputs)
        what = f"the input of {len(rows)} rows that were not answered is damaged or gone"
        damage.record(session, batch, what, now=now, actor=actor, rows=rows, file=batch.input_file_id)


def _file(session: Session, batch: Batch, written: _Written | None, kind: str, now: datetime) -> str | None:
    if written is None:
        return None
    if not blobs.mark_put(session, written.key, written.stored, now):
        raise LookupError(f"blob {written.key} was collected while it was written")
    lives = batch.output_expires_seconds
    file = File(
        id=ids.new("file-"),
        org_id=batch.org_id,
        purpose="batch_output",
        filename=f"{batch.id}_{kind}.jsonl",
        bytes=written.stored.bytes,
        blob_key=written.key,
        created_at=now,
        expires_at=now + timedelta(seconds=lives) if lives is not None else None,
    )
    session.add(file)
    session.flush()
    orgs_sql.count_file(session, batch.org_id, file.bytes)
    return file.id
