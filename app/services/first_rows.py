"""What is known of a batch's first rows: whether they are still to be seen, and what its owner is told of them."""

from sqlmodel import Session

from app.blobs.store import BlobDamaged, BlobMissing
from app.db import jobs as jobs_sql
from app.db.inputs import input_blob
from app.db.tables import Batch
from app.domain.batches import Outcome
from app.domain.first_rows import way_out
from app.domain.lines import read_lines
from app.services import blobs, damage
from app.services.context import Yard
from app.services.moves import outcome_of


def rows_first(session: Session, batch: Batch) -> int:
    """Say how many rows a worker that is given shards of a batch runs first; 0 for one that is known to run.

    A batch of no more rows than that runs at once: there would be nothing left to stop.
    """
    if batch.canary_over or batch.total <= batch.canary_rows:
        return 0
    if batch.canary_rows and jobs_sql.some_completed(session, batch.id):
        batch.canary_over = True
        session.add(batch)
        return 0
    return batch.canary_rows


def line_of_first(yard: Yard, batch: Batch) -> int | None:
    """Find the line of the row that a stopped batch names; blank lines count. None where the input tells no more.

    Raises BlobUnavailable.
    """
    if outcome_of(batch) is not Outcome.FAILED:
        return None
    with yard.store.read() as session:
        content = blobs.recorded(session, input_blob(session, batch.id))
    row = int(batch.errors[0]["line"]) - 1
    lines = read_lines(damage.pieces(yard, content), max_line_bytes=yard.limits.max_line_bytes)
    try:
        return next((line.number for number, line in enumerate(lines) if number == row), None)
    except (BlobDamaged, BlobMissing):
        return None


def concluded(batch: Batch, *, line: int | None) -> list[dict[str, object]]:
    """Complete the reason of a batch that was stopped, now that its rows are counted."""
    not_run = batch.total - (batch.completed or 0) - (batch.failed or 0)
    tail = way_out(not_run=not_run, total=batch.total)
    return [{**error, "message": error["message"] + tail, "line": line} for error in batch.errors]
