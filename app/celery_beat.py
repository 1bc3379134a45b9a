"""A scheduler that says in one line a minute that its broker is away.

Celery's own writes two traces for each tick that cannot be sent: hundreds of megabytes a day.
"""

import logging
import time
from typing import Any

from celery.beat import Scheduler, SchedulingError

COMPLAIN_SECONDS = 60.0
log = logging.getLogger(__name__)


class TerseScheduler(Scheduler):
    """Keeps its schedule in memory: every entry is a short interval."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._complained_at = float("-inf")

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a tick. One that cannot be sent is dropped: sweeps run without any, too (PROTOCOL 6)."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            now = time.monotonic()
            if now - self._complained_at >= COMPLAIN_SECONDS:
                self._complained_at = now
                log.warning("ticks are not heard, and the sweeps run without them: %s", error)
