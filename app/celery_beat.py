"""A scheduler that says in one line a minute that its broker is away, and that goes by a clock nobody can set.

Celery's own writes two traces for each tick that cannot be sent: hundreds of megabytes a day. And it compares times of
day: after the clock of its machine is set back by an hour it sends nothing for an hour.
"""

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.beat import Scheduler, SchedulingError

COMPLAIN_SECONDS = 60.0
log = logging.getLogger(__name__)
_BEGAN_AT = datetime.now(UTC) - timedelta(seconds=time.monotonic())


def steady_now() -> datetime:
    """Return the time that this machine's clock would show had it not been set since this process began."""
    return _BEGAN_AT + timedelta(seconds=time.monotonic())


class TerseScheduler(Scheduler):
    """Keeps its schedule in memory: every entry is a short interval."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._complained_at = float("-inf")
        self._is_over = False

    def setup_schedule(self) -> None:
        """Have every entry go by the same clock: their next times are compared with each other."""
        super().setup_schedule()
        schedules: list[Any] = [entry.schedule for entry in self.schedule.values()]
        for schedule in schedules:
            schedule.nowfun = steady_now

    def close(self) -> None:
        """Say that beat ends; Celery calls this in the handler of the signal, maybe in the middle of a send.

        Celery's own closes the connection there, so that the send fails, its error takes the place of SystemExit, and
        beat lives on. The process ends, and its connection with it.
        """
        self._is_over = True

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due; give the seconds until the next. Raises SystemExit where the signal's own was lost."""
        if self._is_over:
            raise SystemExit
        return float(super().tick(*args, **options))

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send a tick. One that cannot be sent is dropped: sweeps run without any, too (PROTOCOL 6)."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            if self._is_over:
                raise SystemExit from error
            now = time.monotonic()
            if now - self._complained_at >= COMPLAIN_SECONDS:
                self._complained_at = now
                log.warning("ticks are not heard, and the sweeps run without them: %s", error)
