"""Reading stored rows: a segment's bytes are used only when they are those that were handed in (PROTOCOL 5)."""

import hashlib
import logging

from app.blobs.store import BlobDamaged, BlobError, BlobMissing
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
        raise _told(segment, BlobMissing(f"the results of rows {segment.rows} are missing: {error}")) from error
    if hashlib.sha256(content).hexdigest() != segment.digest:
        raise _told(
            segment,
            BlobDamaged(f"the results of rows {segment.rows} are not what was handed in: blob {segment.blob_key}"),
        )
    return content


def _told(segment: Segment, error: BlobError) -> BlobError:
    log.warning("%s: %s", segment.batch_id, error)
    return error
