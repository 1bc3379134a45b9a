"""The heartbeat: the only call that renews leases (R-02). It goes on until the very end, also without a broker."""

import random
from collections.abc import Callable

import structlog

from app.client.control_plane import ControlPlane
from app.client.errors import Dismissed, Refused, TryLater
from app.schemas.workers import Heartbeat as Beat
from app.schemas.workers import HeartbeatAnswer
from app.worker.clock import Clock
from app.worker.held import HeldLeases, Listing
from app.worker.loop import Loop

JITTER = 0.2
RETRY_SECONDS = 2.0
log = structlog.get_logger("gpuyard.worker")


class Heartbeat(Loop):
    """Sends `describe(listing)` every `renew_seconds` ± 20 %, or at once after `wake`."""

    name = "heartbeat"

    def __init__(
        self,
        plane: ControlPlane,
        worker_id: str,
        held: HeldLeases,
        *,
        renew_seconds: float,
        clock: Clock,
        describe: Callable[[Listing], Beat],
        on_answer: Callable[[HeartbeatAnswer], None],
        on_dismissed: Callable[[Dismissed], None],
    ) -> None:
        super().__init__()
        self._plane = plane
        self._worker_id = worker_id
        self._held = held
        self._renew_seconds = renew_seconds
        self._clock = clock
        self._describe = describe
        self._on_answer = on_answer
        self._on_dismissed = on_dismissed

    def turn(self) -> float:
        """Send one beat and take its answer."""
        # Taken before the leases are listed: what the answer says holds from then on, never from when it came.
        sent_at = self._clock()
        beat = self._describe(self._held.listing())
        try:
            answer = self._plane.heartbeat(self._worker_id, beat, timeout_seconds=min(10.0, self._renew_seconds))
        except Dismissed as error:
            self._on_dismissed(error)
            self.stop()
            return 0.0
        except TryLater:
            return min(RETRY_SECONDS, self._renew_seconds)
        except Refused as error:
            log.error(  # noqa: TRY400 - the answer says it all
                "heartbeat.refused", why=str(error), code=error.code, request_id=error.request_id
            )
            return self._renew_seconds
        self._held.apply(answer.leases, sent_at)
        self._on_answer(answer)
        return self._renew_seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
