"""The ids of rows out of the input, for lines that nobody handed in. An input that is damaged gives none."""

from collections.abc import Container, Iterator

from app.blobs.sections import pieces_of
from app.blobs.store import BlobMissing
from app.checksums import running
from app.db.tables import Batch, Job
from app.domain.input_lines import CheckedLine, check_line
from app.domain.lines import read_lines
from app.services.context import Yard


def custom_ids(
    yard: Yard, batch: Batch, job: Job, source: str, rows: Container[int], *, missing_ok: bool
) -> dict[int, str | None] | None:
    """Return the ids of `rows` of a shard; None where its range of the input is not what was validated, or is missing.

    Without `missing_ok` a missing input raises BlobMissing. What was validated without a checksum is only counted.
    """
    total = running()

    def chunks() -> Iterator[bytes]:
        for chunk in pieces_of(yard.blobs.open(source, job.start, job.end)):
            total.update(chunk)
            yield chunk

    found: dict[int, str | None] = {}
    count = 0
    try:
        for line in read_lines(chunks(), max_line_bytes=yard.limits.max_line_bytes, offset=job.start):
            row, count = job.first_row + count, count + 1
            if row in rows:
                checked = check_line(line, endpoint=batch.endpoint)
                found[row] = checked.custom_id if isinstance(checked, CheckedLine) else None
    except BlobMissing as error:
        if missing_ok:
            return None
        raise BlobMissing(f"the input is missing: {error}") from error
    return found if count == job.rows and job.input_sum in {None, total.hexdigest()} else None
