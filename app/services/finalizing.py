"""Finalizing: write the output and the error file, then files, counts and the final state in one transaction.

Two finalizers cannot both win: the last transaction is fenced by the lease and guarded by the state `finalizing`.
"""

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from sqlmodel import Session

from app.blobs.store import BlobWriter
from app.db import batches as batches_sql
from app.db import blobs as blobs_sql
from app.db import locks
from app.db import orgs as orgs_sql
from app.db.batches import Tally
from app.db.tables import Batch, File
from app.domain.batches import BatchState, Outcome
from app.domain.jobs import LeaseEnd
from app.domain.leases import LIVE
from app.services import blobs, first_rows, ids
from app.services.context import Yard
from app.services.endings import Ending, end_leases
from app.services.moves import move, outcome_of
from app.services.result_lines import result_lines

PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Written:
    """A finished content: its blob, its bytes, its digest and its lines."""

    key: str
    bytes: int
    digest: str
    lines: int


@dataclass(frozen=True, slots=True)
class _Files:
    """What there is to refer to; None where a file would be empty (OPENAI_CONTRACT 1.2)."""

    output: _Written | None = None
    error: _Written | None = None


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
        stored = writer.commit()
        return _Written(key, stored.bytes, stored.sha256, self._lines)

    def _write(self) -> tuple[str, BlobWriter]:
        if self._begun is None:
            key = blobs.begin(self._yard, self._org_id)
            self._begun = key, self._stack.enter_context(self._yard.blobs.writer(key))
        self._begun[1].write(b"\n".join([*self._held, b""]))
        self._held.clear()
        self._held_bytes = 0
        return self._begun


def finalize(yard: Yard, lease_id: int, batch_id: str) -> Batch | None:
    """Finalize under a control lease; None when the lease was lost meanwhile. Raises BlobError (try later)."""
    with yard.store.read() as session:
        batch = batches_sql.by_id(session, batch_id)
    if batch is None:
        raise LookupError(f"there is no batch {batch_id}")
    # A batch that ended before it was validated has no rows and no files (PROTOCOL 5).
    files = _write(yard, batch) if batch.validated_at is not None else _Files()
    line = first_rows.line_of_first(yard, batch)
    return yard.store.run(lambda session: _conclude(session, yard, lease_id, batch_id, files, line))


def _write(yard: Yard, batch: Batch) -> _Files:
    with ExitStack() as stack:
        output, error = _Content(yard, batch.org_id, stack), _Content(yard, batch.org_id, stack)
        for found in result_lines(yard, batch):
            (output if found.completed else error).add(found.lines)
        return _Files(output.commit(), error.commit())


def _conclude(
    session: Session, yard: Yard, lease_id: int, batch_id: str, files: _Files, first_line: int | None
) -> Batch | None:
    lease = locks.leases(session, [lease_id]).get(lease_id)
    if lease is None or lease.state not in LIVE:
        return None
    locks.jobs(session, [lease.job_id])
    batch = locks.batch(session, batch_id)
    if batch is None or batch.state != BatchState.FINALIZING:
        raise LookupError(f"batch {batch_id} is not being finalized")
    now = yard.store.now(session)
    batch.output_file_id = _file(session, batch, files.output, "output", now)
    batch.error_file_id = _file(session, batch, files.error, "error", now)
    tally = batches_sql.tallies(session, [batch_id]).get(batch_id, Tally())
    batch.completed, batch.failed, batch.usage = tally.completed, tally.failed, asdict(tally.usage)
    if outcome_of(batch) is Outcome.FAILED:
        batch.errors = first_rows.concluded(batch, line=first_line)
    session.add(batch)
    session.flush()
    actor = f"worker:{lease.worker_id}"
    data = {"completed": tally.completed, "failed": tally.failed, "total": batch.total}
    end = BatchState((outcome_of(batch) or Outcome.COMPLETED).value)
    move(session, batch, end, now=now, actor=actor, data=data)
    return end_leases(
        session, [Ending(lease, LeaseEnd.DONE)], now=now, limits=yard.limits, max_losses=None, actor=actor
    )


def _file(session: Session, batch: Batch, written: _Written | None, kind: str, now: datetime) -> str | None:
    if written is None:
        return None
    if not blobs_sql.mark_put(session, written.key, size=written.bytes, digest=written.digest, now=now):
        raise LookupError(f"blob {written.key} was collected while it was written")
    lives = batch.output_expires_seconds
    file = File(
        id=ids.new("file-"),
        org_id=batch.org_id,
        purpose="batch_output",
        filename=f"{batch.id}_{kind}.jsonl",
        bytes=written.bytes,
        blob_key=written.key,
        created_at=now,
        expires_at=now + timedelta(seconds=lives) if lives is not None else None,
    )
    session.add(file)
    session.flush()
    orgs_sql.count_file(session, batch.org_id, file.bytes)
    return file.id
