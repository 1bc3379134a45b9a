"""Contents that are not what was written: checked reads that note what they find, so that it is told and marked once.

A mark is an update of the blob's row, which comes after leases and before jobs and batches where they are locked, too.
"""

from collections.abc import Collection, Generator
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlmodel import Session

from app.blobs import checked
from app.blobs.checked import Recorded
from app.blobs.sections import pieces_of
from app.blobs.store import BlobDamaged, BlobMissing
from app.checksums import range_sums
from app.db import batches as batches_sql
from app.db import blobs as blobs_sql
from app.db import events
from app.db import files as files_sql
from app.db import segments as segments_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, File, Job, Lease
from app.domain.contents import ContentKind, damaged_file
from app.domain.errors import Conflict
from app.domain.leases import LIVE
from app.domain.rowsets import RowSet
from app.services.context import Yard

ACTOR = "service:contents"
SHOWN = 20
"""Segments that an event names."""
MAX_ROWS_TEXT = 1000
log = structlog.get_logger("gpuyard.contents")


def pieces(yard: Yard, content: Recorded, start: int = 0, end: int | None = None) -> Generator[bytes, None, None]:
    """Yield a content as app.blobs.checked does, and note what is damaged before BlobDamaged is raised."""
    try:
        yield from checked.pieces(yard.blobs, content, start, end)
    except BlobDamaged as error:
        note(yard, content.key, error.what)
        raise


def note(yard: Yard, key: str, what: str) -> bool:
    """Mark a content as damaged, record and count it; False when it was marked before."""

    def work(session: Session) -> ContentKind | None:
        now = yard.store.now(session)
        if not blobs_sql.mark_damaged(session, key, what, now):
            return None
        file = files_sql.of_blob(session, key)
        return _of_file(session, file, what, now) if file is not None else _of_segments(session, key, what, now)

    kind = yard.store.run(work)
    if kind is not None:
        yard.counters.damaged(kind)
        log.error("content.damaged", blob=key, kind=kind.value, what=what)
    return kind is not None


def note_sound(yard: Yard, key: str) -> None:
    """Unmark a content that is what was written again, and record it with its batches or its file."""

    def work(session: Session) -> None:
        if not blobs_sql.mark_sound(session, key):
            return
        file = files_sql.of_blob(session, key)
        if file is not None:
            data: dict[str, object] = {"file": file.id}
            found = files_sql.batches_in_need(session, file.id)
        else:
            segments = segments_sql.of_blob(session, key)
            data = {"segments": [segment.id for segment in segments][:SHOWN]}
            found = [batch for each in segments[:1] if (batch := batches_sql.by_id(session, each.batch_id))]
        subjects = [("batch.repaired", batch.id, batch.org_id) for batch in found]
        if file is not None and not found:
            subjects = [("file.repaired", file.id, file.org_id)]
        now = yard.store.now(session)
        for kind, subject, org_id in subjects:
            events.record(session, now=now, type=kind, subject=subject, actor=ACTOR, org_id=org_id, data=data)
        log.info("content.repaired", blob=key)

    yard.store.run(work)


def record(
    session: Session,
    batch: Batch,
    what: str,
    *,
    now: datetime,
    actor: str = ACTOR,
    file: str | None = None,
    rows: RowSet | None = None,
    segments: Collection[int] = (),
) -> None:
    """Record that a content of a batch is not what was written, or is gone.

    `what` says so in words, of the input or result `file`, or of `segments`; `rows` are those that it costs.
    """
    data: dict[str, object] = {"what": what}
    if file is not None:
        data["file"] = file
    if segments:
        data["segments"] = sorted(segments)[:SHOWN]
    if rows:
        data["rows"] = str(rows)[:MAX_ROWS_TEXT]
    events.record(session, now=now, type="batch.damaged", subject=batch.id, actor=actor, org_id=batch.org_id, data=data)
    log.error("batch.damaged", batch_id=batch.id, **data)


def kind_of(file: File) -> ContentKind:
    """Return what a file is to its batch."""
    return ContentKind.RESULT if file.purpose == "batch_output" else ContentKind.INPUT


def refusal(file: File, what: str) -> Conflict:
    """Return what a caller is answered who asks for a damaged file."""
    return Conflict(damaged_file(file.id, kind_of(file), what), code="file_damaged", param="id")


def _of_file(session: Session, file: File, what: str, now: datetime) -> ContentKind:
    found = files_sql.batches_in_need(session, file.id)
    for batch in found:
        record(session, batch, what, now=now, file=file.id)
    if not found:
        data = {"what": what}
        events.record(
            session, now=now, type="file.damaged", subject=file.id, actor=ACTOR, org_id=file.org_id, data=data
        )
    return kind_of(file)


def _of_segments(session: Session, key: str, what: str, now: datetime) -> ContentKind:
    segments = segments_sql.of_blob(session, key)
    if segments and (batch := batches_sql.by_id(session, segments[0].batch_id)) is not None:
        rows = RowSet()
        for segment in segments:
            rows |= RowSet.parse(segment.rows)
        record(session, batch, what, now=now, rows=rows, segments=[segment.id or 0 for segment in segments])
    return ContentKind.SEGMENT


# --- the part of an input that is a shard's


@dataclass(frozen=True, slots=True)
class DamagedInput:
    """The bytes of a shard's rows that are not those that were validated."""

    batch: Batch
    job: Job
    key: str
    what: str

    @property
    def message(self) -> str:
        """What the rows' error says."""
        return damaged_file(self.batch.input_file_id, ContentKind.INPUT, self.what)


def of_input(yard: Yard, worker_id: str, lease_id: int) -> DamagedInput | None:
    """Compare the input of a shard with the checksum of its validation; None where they match, or no lease is live.

    Input that is gone is not compared: it may be back with the disk that holds it. Raises BlobUnavailable.
    """
    with yard.store.read() as session:
        lease = session.get(Lease, lease_id)
        if lease is None or lease.worker_id != worker_id or lease.state not in LIVE:
            return None
        job = session.get(Job, lease.job_id)
        batch = batches_sql.by_id(session, job.batch_id) if job is not None else None
        if job is None or batch is None or job.input_sum is None:
            return None
        key = input_blob(session, batch.id)
    what = input_differs(yard, job, key)
    return DamagedInput(batch, job, key, what) if what is not None else None


def input_differs(yard: Yard, job: Job, key: str) -> str | None:
    """Say where a shard's input differs from what was validated. None: it does not, or it is gone."""
    try:
        chunks = pieces_of(yard.blobs.open(key, job.start, job.end))
        (found,) = range_sums(chunks, [(job.start, job.end)], offset=job.start)
    except BlobMissing:
        return None
    return None if found == job.input_sum else f"its bytes {job.start} to {job.end - 1} are not those that were written"


def note_input(session: Session, found: DamagedInput, now: datetime) -> None:
    """Record that a shard's input is damaged, and mark the content, in the transaction that fails the shard."""
    blobs_sql.mark_damaged(session, found.key, found.what, now)
    rows = RowSet.span(found.job.first_row, found.job.rows)
    record(session, found.batch, found.what, now=now, file=found.batch.input_file_id, rows=rows)


def count_input(yard: Yard, found: DamagedInput) -> None:
    """Count and log it, after the commit."""
    yard.counters.damaged(ContentKind.INPUT)
    log.error("content.damaged", blob=found.key, kind=ContentKind.INPUT.value, batch_id=found.batch.id, what=found.what)
