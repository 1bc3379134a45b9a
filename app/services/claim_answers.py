"""What a claim is answered: the batch, and a grant for each of its leases (PROTOCOL 6)."""

from collections.abc import Sequence

from sqlmodel import Session

from app.blobs.store import BlobError
from app.db import batches as batches_sql
from app.db.inputs import input_blob
from app.db.tables import Batch, Job, Lease
from app.db.types import unreadable
from app.domain.eligibility import No
from app.domain.rows import RowErrorCode
from app.schemas.claims import BatchBrief, ClaimAnswer, Grant, RejectedRow
from app.services.context import Yard
from app.services.first_rows import rows_first
from app.services.requirements import needs_of

CONTENT_BYTES = 128 * 1024
"""So much of the input goes with a claim's answer at most: for a small batch the way to its rows is the longest."""


def answer_again(session: Session, leases: Sequence[Lease]) -> ClaimAnswer:
    """Answer a repeated claim with those of its leases that are still live."""
    if not leases:
        return ClaimAnswer(no=No.NOTHING, work=True)
    batch = batches_sql.by_id(session, leases[0].batch_id)
    pairs = [(lease, job) for lease in leases if (job := session.get(Job, lease.job_id)) is not None]
    return answer(session, batch, pairs, work=False) if batch is not None else ClaimAnswer(no=No.NOTHING)


def answer(session: Session, batch: Batch, pairs: Sequence[tuple[Lease, Job]], *, work: bool) -> ClaimAnswer:
    """Answer with leases of one batch. `work`: the pool has something else for this worker."""
    brief = BatchBrief(
        id=batch.id,
        endpoint=batch.endpoint,
        input_path=f"/workers/input/{batch.input_file_id}",
        priority=9 - batch.rank,
        created_at=int(batch.created_at.timestamp()),
        drop_parameters=batch.drop_parameters,
        left_out=batch.left_out,
        canary_rows=rows_first(session, batch),
    )
    asked = needs_of(batch).parameters
    grants = [
        Grant(
            lease_id=lease.id or 0,
            job_id=job.id or 0,
            number=job.number,
            first_row=job.first_row,
            rows=job.rows,
            start=job.start,
            end=job.end,
            input_sum=job.input_sum,
            done=job.done_rows,
            rejected=_rejected(job),
            parameters=asked.get(job.requirement_key or "", []),
            row_by_row=job.cautious_at is not None,
        )
        for lease, job in pairs
    ]
    return ClaimAnswer(batch=brief, grants=grants, work=work)


def _rejected(job: Job) -> list[RejectedRow]:
    """Name the rows that are answered without being run: all of them, where it is not known which."""
    if unreadable(job.rejected):
        code, message = RowErrorCode.INTERNAL_ERROR, "which rows of this shard must not be run cannot be read any more"
        rows = range(job.first_row, job.first_row + job.rows)
        return [RejectedRow(row=row, code=code, message=message) for row in rows]
    return [RejectedRow(row=row, code=code, message=message) for row, code, message in job.rejected]


def with_rows(yard: Yard, found: ClaimAnswer) -> ClaimAnswer:
    """Put the text of granted shards beside them, while it is short; the rest is fetched by their worker.

    After the commit, because no blob is read inside a transaction (PROTOCOL 5). Content that cannot be read now, or is
    no text, is left out: who then asks for it is told why.
    """
    if found.batch is None or not found.grants or found.grants[0].end - found.grants[0].start > CONTENT_BYTES:
        return found
    with yard.store.read() as session:
        key = input_blob(session, found.batch.id)
    grants: list[Grant] = []
    left = CONTENT_BYTES
    try:
        for grant in found.grants:
            left -= grant.end - grant.start
            if left < 0:
                break
            text = yard.blobs.read(key, grant.start, grant.end).decode()
            grants.append(grant.model_copy(update={"content": text}))
    except (BlobError, UnicodeDecodeError):
        return found
    return found.model_copy(update={"grants": [*grants, *found.grants[len(grants) :]]})
