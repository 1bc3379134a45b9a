"""Saying hello: what the spool holds first, then who we are; ten tries when nobody answers (A-15, PROTOCOL 3, R-09)."""

import threading
from collections.abc import Callable, Iterator

import structlog

from app.client.control_plane import ControlPlane
from app.client.errors import BUG, TryLater
from app.schemas.workers import Hello, Welcome
from app.worker.spool import Spool

TRIES = 10
log = structlog.get_logger("gpuyard.worker")


def say_hello(
    plane: ControlPlane, spool: Spool, hello: Callable[[], Hello], waits: Iterator[float], stop: threading.Event
) -> Welcome:
    """Send the spool and then the hello. Raises the last TryLater after ten tries, Dismissed and Refused at once.

    What of the spool the API still breaks on with the last try keeps no worker away for good: its leases end with the
    hello, and its rows run again.
    """
    for tries in range(1, TRIES + 1):
        try:
            _send_spool(spool, plane, is_last=tries == TRIES)
            return plane.register(hello())
        except TryLater as error:
            log.warning("hello.unanswered", tries=tries, of=TRIES, why=str(error))
            if tries == TRIES or stop.wait(next(waits)):
                raise
    raise AssertionError("unreachable")


def _send_spool(spool: Spool, plane: ControlPlane, *, is_last: bool) -> None:
    try:
        spool.send_orphans(plane, deadline_seconds=0.0)
    except TryLater as error:
        if not is_last or error.status != BUG:
            raise
        log.error("spool.left", why=str(error), request_id=error.request_id)  # noqa: TRY400 - the reason says it all
