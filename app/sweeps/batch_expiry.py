"""batch-expiry: end batches whose window is over, with or without a worker alive, and finish half-done stops."""

from collections.abc import Mapping

from app.services import stops
from app.services.context import Yard


def run_once(yard: Yard, limit: int) -> Mapping[str, int]:
    """Tell due batches to end, and tell the leases and jobs of those that were told before."""
    return {"expired": stops.expire_due(yard, limit), "spread": stops.spread_unfinished(yard, limit)}
