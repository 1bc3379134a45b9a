"""A worker's last word: one try of two seconds that delays nothing, and on which nothing depends (BY-01 to BY-07)."""

import re
import threading

import structlog

from app.client.control_plane import BYE_SECONDS
from app.client.errors import ControlPlaneError
from app.domain.workers import ByeReason
from app.schemas.workers import Bye
from app.worker.opening import Opened
from app.worker.state import kept

_WORKER_ID = re.compile(r"wrk_[0-9A-Za-z]{1,64}")
log = structlog.get_logger("gpuyard.worker")


def say_bye(own: Opened, worker_id: str, reason: ByeReason, abandoned: int) -> None:
    """Say why it leaves, how many shards it leaves as they are, and what the control plane will still get of it."""
    bye = Bye(
        boot_id=own.state.boot_id,
        reason=reason,
        inflight_abandoned=abandoned,
        spooled=own.spool.leases(),
    )

    def say() -> None:
        try:
            own.plane.bye(worker_id, bye)
        except ControlPlaneError as error:
            log.debug("bye.unanswered", why=str(error))

    # Each step of a call has a time of its own, and an answer that comes byte by byte none: the whole has two seconds.
    saying = threading.Thread(target=say, name="gpuyard-bye", daemon=True)
    saying.start()
    saying.join(BYE_SECONDS)


def take_back_hello(own: Opened, reason: ByeReason) -> None:
    """No hello was answered, but one may have been taken: then the control plane waits for this process in vain.

    A machine that was never welcomed does not know its id, and is missed by its silence.
    """
    if (worker_id := kept(own.state.path / "worker_id", _WORKER_ID)) is not None:
        say_bye(own, worker_id, reason, 0)
