"""A batch as its owner names it; another org's looks as if it were not there (DESIGN 11)."""

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db.tables import Batch
from app.domain.errors import NotFound
from app.services.context import Caller


def own_batch(session: Session, caller: Caller, batch_id: str) -> Batch:
    """Read a batch of the caller's org. Raises NotFound."""
    batch = batches_sql.find(session, batch_id, caller.org_id)
    if batch is None:
        raise NotFound(f"No such Batch object: {batch_id}", code="batch_not_found", param="id")
    return batch
