"""Why rows of a batch failed, most frequent first, and some of these rows; it costs the same for any batch."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlmodel import Session

from app.blobs.checked import Recorded, as_file
from app.blobs.store import BlobDamaged, BlobMissing
from app.db import files as files_sql
from app.db import segments as segments_sql
from app.db.tables import Batch, Segment
from app.domain.batches import ENDED
from app.domain.row_failures import SHOWN_KINDS, Failures, failed_row, matches
from app.schemas.batches import FailedRow, RowErrors, TopError
from app.services import blobs, damage
from app.services import segments as segments_service
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch
from app.services.shard_lines import stored_lines

MAX_BYTES = 4 * 1024 * 1024
MAX_LISTED_BYTES = 16 * 1024 * 1024
"""Of an error file, for rows that somebody asks for."""
MAX_SEGMENTS = 64
MAX_ROWS_LISTED = 1000


def top(yard: Yard, caller: Caller, batch_id: str, *, code: str | None = None, limit: int = 0) -> RowErrors:
    """Return why rows failed, and the first `limit` of them; with `code` only failures that it means.

    Of a batch that has ended reasons were counted as its files were written, and rows are looked for in the first
    megabytes of its error file. While it runs both are of the last rows stored, four megabytes at most.
    Raises NotFound.
    """
    with yard.store.read() as session:
        batch = own_batch(session, caller, batch_id)
        most = MAX_LISTED_BYTES if limit else MAX_BYTES
        lines = _failed_lines(session, yard, batch, most) if limit or batch.row_errors is None else iter(())

    def meant(kind: str) -> bool:
        return code is None or matches(kind, {code})

    counted = Failures()
    failed: list[FailedRow] = []
    for row in map(failed_row, lines):
        counted.add(row)
        if len(failed) < limit and meant(row.kind):
            failed.append(FailedRow(custom_id=row.custom_id, code=row.kind, message=row.message))
        if len(failed) == limit and batch.row_errors is not None:
            break
    if batch.row_errors is not None:
        rows, data = batch.total - (batch.completed or 0), [TopError.model_validate(each) for each in batch.row_errors]
    else:
        rows = counted.rows
        found = counted.most_frequent(SHOWN_KINDS)
        data = [TopError(code=each.kind, count=each.rows, message=each.message or None) for each in found]
    return RowErrors(rows=rows, data=[each for each in data if meant(each.code)], failed=failed)


def _failed_lines(session: Session, yard: Yard, batch: Batch, most: int) -> Iterator[bytes]:
    """Find where lines of failed rows lie; they are read outside the transaction."""
    if batch.state not in ENDED:
        return _stored(yard, segments_sql.with_failures(session, batch.id, MAX_SEGMENTS))
    if batch.error_file_id is None:
        return iter(())
    found = files_sql.content(session, batch.error_file_id, org_id=batch.org_id, now=yard.store.now(session))
    return _of_file(yard, blobs.as_recorded(found[1]), most) if found is not None else iter(())


def _stored(yard: Yard, segments: Sequence[Segment]) -> Iterator[bytes]:
    """Give the failed rows of segments; a damaged one is left out. The first is looked at, however large it is."""
    left = MAX_BYTES
    for segment in segments:
        if left < min(segment.length, MAX_BYTES):
            return
        left -= segment.length
        try:
            content = segments_service.read(yard, segment)
        except (BlobDamaged, BlobMissing):
            continue
        for _, completed, start, end in stored_lines(content):
            if end > MAX_BYTES:
                return
            if not completed:
                yield content[start:end]


def _of_file(yard: Yard, content: Recorded, most: int) -> Iterator[bytes]:
    """Give the whole lines within the first `most` bytes of an error file; none behind what is damaged."""
    with suppress(BlobDamaged), as_file(damage.pieces(yard, content, 0, most)) as file:
        for line in file:
            if line.endswith(b"\n"):  # else it is cut by the limit
                yield line
