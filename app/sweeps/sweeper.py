"""The threads that run sweeps, so that neither control work nor a pass that hangs keeps dead leases alive.

One thread runs what needs the database alone, and each sweep that reads contents has a thread of its own: no call into
a file system whose server is away can be ended. Beat's tick is the trigger. When no pass of a sweep ran for three
periods, for whatever reason, its thread runs it.
"""

import logging
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from app.db.store import DatabaseUnavailable
from app.services.context import Yard
from app.sweeps.election import READS_CONTENTS, overdue, run_pass

log = logging.getLogger(__name__)


class Sweepers:
    """All sweepers of a process. `periods` maps each sweep to its period in seconds."""

    def __init__(self, yard: Yard, *, periods: Mapping[str, float], runner: str, stopping: threading.Event) -> None:
        shares = [periods.keys() - READS_CONTENTS, *({name} for name in periods.keys() & READS_CONTENTS)]
        self._sweepers = [
            Sweeper(yard, periods={name: periods[name] for name in share}, runner=runner, stopping=stopping)
            for share in shares
            if share
        ]

    def threads(self) -> list[threading.Thread]:
        """Make their threads, which nobody has to wait for."""
        return [threading.Thread(target=each.run, name=f"sweeper-{each.name}", daemon=True) for each in self._sweepers]

    def tick(self, name: str) -> None:
        """Say that it is time for a sweep, or, with a name that is none, that it is time to stop."""
        for each in self._sweepers:
            each.tick(name)


class Sweeper:
    """Runs elected passes of its sweeps in one thread. `periods` maps each to its period in seconds."""

    def __init__(self, yard: Yard, *, periods: Mapping[str, float], runner: str, stopping: threading.Event) -> None:
        self._yard = yard
        self._periods = dict(periods)
        self._runner = runner
        self._stopping = stopping
        self._ticks: queue.Queue[str] = queue.Queue(64)
        self.name = min(self._periods) if len(self._periods) == 1 else "database"

    def tick(self, name: str) -> None:
        """Say that it is time for a sweep. A full queue drops the tick: the next one comes."""
        try:
            self._ticks.put_nowait(name)
        except queue.Full:
            log.debug("ticks come faster than passes run; %s is dropped", name)

    def run(self) -> None:
        """Run passes until told to stop."""
        shortest = min(self._periods.values())
        looked = time.monotonic()
        while not self._stopping.is_set():
            # Also while ticks come: those of one sweep say nothing of the others, and anybody may send them.
            wait = looked + shortest - time.monotonic()
            if wait <= 0:
                self._catch_up()
                looked = time.monotonic()
                continue
            with suppress(queue.Empty):
                self._pass(self._ticks.get(timeout=wait))

    def _catch_up(self) -> None:
        try:
            late = overdue(self._yard, self._periods)
        except Exception as error:  # noqa: BLE001 - the database may be away; the next look is another chance
            log.warning("cannot see when sweeps ran last: %s", error)
            return
        for name in late:
            self._pass(name)

    def _pass(self, name: str) -> None:
        period = self._periods.get(name)
        if period is None:
            return
        try:
            counts = run_pass(self._yard, name, period, self._runner)
        except DatabaseUnavailable as error:
            self._yard.counters.sweep_passes.labels(name, "failed").inc()
            log.warning("a pass of %s failed; the next one starts afresh: %s", name, error)
            return
        except Exception:
            self._yard.counters.sweep_passes.labels(name, "failed").inc()
            log.exception("a pass of %s failed; the next one starts afresh", name)
            return
        if counts is not None:
            self._yard.counters.sweep_passes.labels(name, "ended").inc()
            log.debug("%s: %s", name, dict(counts))
