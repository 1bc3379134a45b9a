"""retention: hide expired files, delete contents that nothing refers to, forget old events."""

from collections.abc import Mapping

from app.services import retention
from app.services.context import Yard


def run_once(yard: Yard, limit: int) -> Mapping[str, int]:
    """Forget up to `limit` things of each kind."""
    return {
        "files": retention.expire_files(yard, limit),
        "contents": retention.collect_contents(yard, limit),
        "events": retention.forget_events(yard, limit),
    }
