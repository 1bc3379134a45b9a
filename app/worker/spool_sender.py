"""Sends what ended shares left in the spool, once the control plane answers again."""

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed, TryLater
from app.worker.loop import Loop
from app.worker.spool import Spool

IDLE_SECONDS = 60.0
RETRY_SECONDS = 5.0


class SpoolSender(Loop):
    """Woken by each answered heartbeat while orphans wait. A dismissal is the heartbeat's to find."""

    name = "spool-sender"

    def __init__(self, spool: Spool, plane: ControlPlane) -> None:
        super().__init__()
        self._spool = spool
        self._plane = plane

    def turn(self) -> float:
        """Send all, and see whether a full disk has room again."""
        self._spool.try_again()
        idle = IDLE_SECONDS if self._spool.error is None else RETRY_SECONDS
        if not self._spool.has_orphans:
            return idle
        try:
            self._spool.send_orphans(self._plane, deadline_seconds=0.0)
        except (TryLater, Dismissed):
            return RETRY_SECONDS
        return idle
