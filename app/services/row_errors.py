"""Why rows of a batch failed, most frequent first: a look at some of them, so that it costs the same for any batch."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from sqlmodel import Session

from app.blobs.checked import Recorded, as_file
from app.blobs.store import BlobDamaged
from app.db import files as files_sql
from app.db import segments as segments_sql
from app.db.tables import Batch
from app.domain.batches import ENDED
from app.domain.row_failures import most_frequent
from app.schemas.batches import RowErrors, TopError
from app.services import blobs, damage
from app.services.context import Caller, Yard
from app.services.own_batch import own_batch

MAX_BYTES = 4 * 1024 * 1024
MAX_SEGMENTS = 64
TOP_ERRORS = 5


class _Piece(NamedTuple):
    """Bytes of a blob with lines in them. `stored`: they are a segment's, with row and flag before each line."""

    content: Recorded
    start: int
    end: int
    stored: bool


def top(yard: Yard, caller: Caller, batch_id: str) -> RowErrors:
    """Count the failures among the last rows stored while a batch runs, and among the first of its error file after.

    Reads four megabytes at most. Raises NotFound.
    """
    with yard.store.read() as session:
        pieces = _pieces(session, yard, own_batch(session, caller, batch_id))
    rows, found = most_frequent(_failed_lines(yard, pieces), TOP_ERRORS)
    data = [TopError(code=failure.kind, count=failure.rows, message=failure.message or None) for failure in found]
    return RowErrors(rows=rows, data=data)


def _pieces(session: Session, yard: Yard, batch: Batch) -> list[_Piece]:
    if batch.state not in ENDED:
        segments = segments_sql.with_failures(session, batch.id, MAX_SEGMENTS)
        return [
            _Piece(blobs.recorded(session, each.blob_key), each.start, each.start + each.length, stored=True)
            for each in segments
        ]
    if batch.error_file_id is None:
        return []
    found = files_sql.content(session, batch.error_file_id, org_id=batch.org_id, now=yard.store.now(session))
    return [_Piece(blobs.as_recorded(found[1]), 0, found[0].bytes, stored=False)] if found is not None else []


def _failed_lines(yard: Yard, pieces: list[_Piece]) -> Iterator[bytes]:
    """Give the whole lines of failed rows within the first MAX_BYTES of all pieces; none behind what is damaged."""
    left = MAX_BYTES
    for piece in pieces:
        end = min(piece.end, piece.start + left)
        with suppress(BlobDamaged), as_file(damage.pieces(yard, piece.content, piece.start, end)) as file:
            for line in file:
                left -= len(line)
                if not line.endswith(b"\n"):  # cut by the limit
                    return
                if not piece.stored:
                    yield line
                    continue
                _, flag, output = line.split(b"\t", 2)
                if flag == b"f":
                    yield output
        if left <= 0:
            return
