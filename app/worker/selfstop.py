"""Stops jobs of whose leases nothing was heard for too long. A loop of its own, for a heartbeat may hang (LS-05)."""

from app.worker.held import HeldLeases
from app.worker.loop import Loop

LOOK_SECONDS = 0.5
"""Much less than the second that `2 * renew_seconds > kill_after_seconds + 1` leaves for it."""


class SelfStop(Loop):
    """Looks at the clock of every lease held."""

    name = "self-stop"

    def __init__(self, held: HeldLeases) -> None:
        super().__init__()
        self._held = held

    def turn(self) -> float:
        """Stop what is overdue."""
        self._held.stop_overdue()
        return LOOK_SECONDS
