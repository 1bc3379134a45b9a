"""Contents that cannot be read: one that is missing is looked for a few times, a store that is away is waited for.

A try that found a content missing, while the store was there, is counted on the job. The last one ends the work with
what there is. A store that is away counts as no try (app.blobs.store).
"""

from sqlmodel import Session

from app.blobs.store import BlobMissing, BlobUnavailable
from app.db import jobs as jobs_sql
from app.db.tables import Job

CONTENT_TRIES = 5
"""With the pauses in between, 2 to 16 s, that is half a minute: a network file system may be late."""


def is_last_try(session: Session, lease_id: int) -> bool:
    """Tell whether the control work of a lease must end now, whatever is missing."""
    return jobs_sql.content_tries(session, lease_id) >= CONTENT_TRIES - 1


def note(job: Job, error: Exception) -> str:
    """Count a try of a locked job that ended with `error`, and return why its batch waits."""
    if isinstance(error, BlobMissing):
        job.content_tries += 1
        return f"{error}; try {job.content_tries} of {CONTENT_TRIES}; after that the batch ends without it"
    if isinstance(error, BlobUnavailable):
        return f"the store of contents is away: {error}"
    return "internal error, will be tried again; see the log of the control worker"
