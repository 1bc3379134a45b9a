"""What an API process does beside answering: it says that heartbeats can be heard, and stands in for who is away.

Threads that end with the process: presence (PROTOCOL 4), the sweepers, which stay quiet while passes run elsewhere
(PROTOCOL 6), and the stand-in for control workers.
"""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from app.services import presence, standin
from app.services.context import Yard
from app.sweeps.sweeper import Sweepers

log = logging.getLogger(__name__)

LOOKS = 6
"""So often in `stand_in_seconds` it looks whether one is needed."""
STAND_IN_SECONDS = 600.0
"""A stand-in works for so long, and is started again if it is needed still."""
CHILD_LOOK_SECONDS = 1.0
CHILD_STOP_SECONDS = 15.0
"""More than its agent takes to stop; a database that hangs must not hold this thread for ever."""


class Duties:
    """The side work of one API process.

    `periods` maps each sweep to its period in seconds; after `stand_in_seconds` without a control worker it starts one.
    """

    def __init__(self, yard: Yard, *, periods: Mapping[str, float], stand_in_seconds: float, runner: str) -> None:
        self._yard = yard
        self._stand_in_seconds = stand_in_seconds
        self._stopping = threading.Event()
        self._tick_seconds = yard.timing.renew_seconds
        self._sweepers = Sweepers(yard, periods=periods, runner=runner, stopping=self._stopping)
        self._threads = [
            threading.Thread(target=self._say_present, name="presence", daemon=True),
            threading.Thread(target=self._stand_in, name="control-stand-in", daemon=True),
            *self._sweepers.threads(),
        ]

    def start(self) -> None:
        """Start; the first tick is written before this returns, so that nothing expires for our own absence."""
        presence.tick(self._yard)
        self._tick_seconds = presence.renewal_seconds(self._yard)
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop, for at most about `timeout` seconds."""
        self._stopping.set()
        self._sweepers.tick("")
        end = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _say_present(self) -> None:
        while not self._stopping.wait(self._tick_seconds):
            try:
                gap = presence.tick(self._yard)
                self._tick_seconds = presence.renewal_seconds(self._yard)
            except Exception as error:  # noqa: BLE001 - a database that is away comes back, and then the gap is added
                log.warning("the presence tick was not written: %s", error)
                continue
            if gap is not None:
                log.warning(
                    "no heartbeat was heard for %.0f s; leases of the workers concerned live that much longer",
                    gap.total_seconds(),
                )

    def _stand_in(self) -> None:
        while not self._stopping.wait(self._stand_in_seconds / LOOKS):
            try:
                if standin.needed(self._yard, self._stand_in_seconds):
                    log.warning("no control worker is alive and work waits: this process starts one")
                    self._run_stand_in()
            except Exception as error:  # noqa: BLE001 - a database or a process table that is full is not so for ever
                log.warning("cannot stand in for control workers: %s", error)

    def _run_stand_in(self) -> None:
        """Run a control worker as a child; it ends when its standard input does, so with us at the latest."""
        with subprocess.Popen([sys.executable, "-m", "app.control"], stdin=subprocess.PIPE) as child:
            until = time.monotonic() + STAND_IN_SECONDS
            while child.poll() is None and time.monotonic() < until and not self._stopping.wait(CHILD_LOOK_SECONDS):
                pass
            try:
                child.communicate(timeout=CHILD_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()  # every write of its work is fenced by a lease
