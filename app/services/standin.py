"""When nobody does control work, whatever the reason, somebody must: the question an API process asks (PROTOCOL 6)."""

from datetime import timedelta

from app.db import workers as workers_sql
from app.db.jobs import control_waits
from app.services.context import Yard


def needed(yard: Yard, alone_seconds: float) -> bool:
    """Tell whether control work has waited for so long without any control worker alive."""
    with yard.store.read() as session:
        before = yard.store.now(session) - timedelta(seconds=alone_seconds)
        return control_waits(session, since=before) and not workers_sql.control_alive(session, before)
