"""Reading stored rows: a segment's bytes are used only when they are those that were handed in (PROTOCOL 5)."""

import hashlib
import logging
from collections.abc import Iterator, Sequence

from app.blobs.sections import pieces_of
from app.blobs.store import BlobDamaged, BlobError, BlobMissing
from app.checksums import checksum
from app.db.tables import Segment
from app.services.context import Yard

log = logging.getLogger(__name__)


def read(yard: Yard, segment: Segment) -> bytes:
    """Return a segment's bytes.

    Raises BlobDamaged unless they have the digest that was taken at their hand-in, BlobMissing, BlobUnavailable.
    """
    try:
        content = yard.blobs.read(segment.blob_key, segment.start, segment.start + segment.length)
    except BlobMissing as error:
        raise _missing(segment, error) from error
    if hashlib.sha256(content).hexdigest() != segment.digest:
        raise _damaged(segment)
    return content


def piece_sums(yard: Yard, segment: Segment) -> Sequence[str]:
    """Read a segment in pieces, and return the checksum of each. Raises as `read` does."""
    digest, sums = hashlib.sha256(), []
    try:
        for piece in _pieces(yard, segment):
            digest.update(piece)
            sums.append(checksum(piece))
    except BlobMissing as error:
        raise _missing(segment, error) from error
    if digest.hexdigest() != segment.digest:
        raise _damaged(segment)
    return sums


def pieces(yard: Yard, segment: Segment, sums: Sequence[str]) -> Iterator[bytes]:
    """Yield a segment in pieces. Raises BlobDamaged before one that has another checksum than in `sums`."""
    for piece, known in zip(_pieces(yard, segment), sums, strict=True):
        if checksum(piece) != known:
            raise _damaged(segment)
        yield piece


def _pieces(yard: Yard, segment: Segment) -> Iterator[bytes]:
    return pieces_of(yard.blobs.open(segment.blob_key, segment.start, segment.start + segment.length))


def _missing(segment: Segment, error: BlobMissing) -> BlobError:
    return _told(segment, BlobMissing(f"the results of rows {segment.rows} are missing: {error}"))


def _damaged(segment: Segment) -> BlobError:
    what = f"the results of rows {segment.rows} are not what was handed in: blob {segment.blob_key}"
    return _told(segment, BlobDamaged(what))


def _told(segment: Segment, error: BlobError) -> BlobError:
    log.warning("%s: %s", segment.batch_id, error)
    return error
