"""Gives up leases of which nothing was heard for too long. Its own loop: it works while a heartbeat hangs (LS-05)."""

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
        """Drop what is overdue."""
        self._held.drop_overdue()
        return LOOK_SECONDS
