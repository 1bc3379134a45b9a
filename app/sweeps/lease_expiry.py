"""lease-expiry: end live leases whose time is over, and those of workers that said goodbye (LS-04, R-05)."""

from collections.abc import Mapping

from app.services import leases
from app.services.context import Yard


def run_once(yard: Yard, limit: int) -> Mapping[str, int]:
    """End up to `limit` leases, one transaction each; none while nobody could have heard a heartbeat."""
    return {"ended": leases.expire(yard, limit)}
