"""Why rows of a batch failed, most frequent first: a look at some of them, so that it costs the same for any batch."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlmodel import Session

from app.blobs.checked import Recorded, as_file
from app.blobs.store import BlobDamaged, BlobMissing
from app.db import files as files_sql
from app.db import segments as segments_sql
from app.db.tables import Batch, Segment
from app.domain.batches import ENDED
from app.domain.row_failures import most_frequent
from app.schemas.batches import RowErrors, TopError
from app.services import blobs, damage
from app.services import segments as segments_service
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch
from app.services.shard_lines import stored_lines

MAX_BYTES = 4 * 1024 * 1024
MAX_SEGMENTS = 64
TOP_ERRORS = 5


def top(yard: Yard, caller: Caller, batch_id: str) -> RowErrors:
    """Count the failures among the last rows stored while a batch runs, and among the first of its error file after.

    Looks at four megabytes of lines at most. Raises NotFound.
    """
    with yard.store.read() as session:
        lines = _failed_lines(session, yard, own_batch(session, caller, batch_id))
    rows, found = most_frequent(lines, TOP_ERRORS)
    data = [TopError(code=failure.kind, count=failure.rows, message=failure.message or None) for failure in found]
    return RowErrors(rows=rows, data=data)


def _failed_lines(session: Session, yard: Yard, batch: Batch) -> Iterator[bytes]:
    """Find where lines of failed rows lie; they are read outside the transaction."""
    if batch.state not in ENDED:
        return _stored(yard, segments_sql.with_failures(session, batch.id, MAX_SEGMENTS))
    if batch.error_file_id is None:
        return iter(())
    found = files_sql.content(session, batch.error_file_id, org_id=batch.org_id, now=yard.store.now(session))
    return _of_file(yard, blobs.as_recorded(found[1])) if found is not None else iter(())


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


def _of_file(yard: Yard, content: Recorded) -> Iterator[bytes]:
    """Give the whole lines within the first MAX_BYTES of an error file; none behind what is damaged."""
    with suppress(BlobDamaged), as_file(damage.pieces(yard, content, 0, MAX_BYTES)) as file:
        for line in file:
            if line.endswith(b"\n"):  # else it is cut by the limit
                yield line
