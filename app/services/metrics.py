"""The figures of the whole service, read when somebody scrapes and kept for a few seconds.

Several Prometheus servers, or a person who reloads a page, cost one reading. A database that hangs holds one thread of
ours and no more: the next scrapes go without its figures.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.db import events as events_sql
from app.db import metrics as metrics_sql
from app.db import readiness as readiness_sql
from app.db.metrics import BatchRow, HostRow, LeaseRow, WorkerRow
from app.db.store import DatabaseUnavailable
from app.db.tables import SweepState
from app.domain.events import MEANINGS
from app.domain.jobs import OF_BATCH, ControlVerb
from app.services.context import Yard
from app.services.presence import Hearing, hearing

KEEP_SECONDS = 5.0
PATIENCE_SECONDS = 5.0
"""How long a scrape waits for a reading that another one began."""
CATCH_UP = 5
"""Readings of new events in one scrape; what is left is counted at the next."""
log = structlog.get_logger("gpuyard.metrics")


@dataclass(frozen=True, slots=True)
class Figures:
    """One reading. `cut`: some of it stopped at the bound of what is looked at."""

    now: datetime
    seconds: float
    cut: bool
    batches: Sequence[BatchRow]
    control: tuple[int, datetime | None]
    webhooks: tuple[int, datetime | None]
    leases: Sequence[LeaseRow]
    workers: Sequence[WorkerRow]
    hosts: Sequence[HostRow]
    sweeps: Sequence[SweepState]
    heard: Hearing


class Reading:
    """Reads figures, and counts events since it was made. Thread-safe."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._lock = threading.Lock()
        self._kept: Figures | None = None
        self._kept_until = float("-inf")
        self._cursor: int | None = None
        self.events: dict[str, int] = dict.fromkeys(MEANINGS, 0)

    def figures(self) -> Figures | None:
        """Give figures that are at most a few seconds old; None when the database does not answer."""
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            return None
        try:
            if time.monotonic() >= self._kept_until:
                self._kept = self._try()
                self._kept_until = time.monotonic() + KEEP_SECONDS
            return self._kept
        finally:
            self._lock.release()

    def _try(self) -> Figures | None:
        try:
            return self._read()
        except (DatabaseUnavailable, SQLAlchemyError) as error:
            log.warning("metrics.not_read", why=str(error)[:500])
            return None

    def _read(self) -> Figures:
        began = time.monotonic()
        with self._yard.store.read() as session:
            now = self._yard.store.now(session)
            batches = metrics_sql.batches(session)
            control = metrics_sql.control_work(session, OF_BATCH)
            webhooks = metrics_sql.control_work(session, [ControlVerb.DELIVER])
            leases = metrics_sql.leases(session, now)
            workers = metrics_sql.workers(session)
            hosts = metrics_sql.hosts(session)
            sweeps = readiness_sql.sweeps(session)
            heard = hearing(session, self._yard, [row.pool for row in workers], now)
            if self._cursor is None:
                self._cursor = events_sql.last_seq(session)
            for _ in range(CATCH_UP):
                counts, self._cursor, more = metrics_sql.new_events(session, self._cursor)
                for type_, count in counts.items():
                    self.events[type_] = self.events.get(type_, 0) + count
                if not more:
                    break
        looked_at = (
            *(sum(row.batches for row in batches if row.state == state) for state in {row.state for row in batches}),
            control[0],
            webhooks[0],
            sum(row.leases for row in leases),
            sum(row.workers for row in workers),
        )
        return Figures(
            now=now,
            seconds=time.monotonic() - began,
            cut=max(looked_at) >= metrics_sql.LIMIT,
            batches=batches,
            control=control,
            webhooks=webhooks,
            leases=leases,
            workers=workers,
            hosts=hosts,
            sweeps=sweeps,
            heard=heard,
        )
