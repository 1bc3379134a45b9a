"""heartbeat-sweeper: store that workers have been silent for longer than the grace (R-06)."""

from collections.abc import Mapping

from app.services import workers
from app.services.context import Yard


def run_once(yard: Yard, limit: int) -> Mapping[str, int]:
    """Mark silent workers offline, one event each."""
    return {"offline": workers.mark_offline(yard, limit)}
