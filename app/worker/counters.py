"""What a GPU worker counts for Prometheus: once a hand-in and once a row that runs again, never once a row."""

import math
import time

from prometheus_client import CollectorRegistry

from app.domain import metrics
from app.schemas.segments import Part
from app.worker.verdicts import Verdict
from config.metrics import RowCounters, counter, registry


class WorkerCounters:
    """One a process. Thread-safe; `registry` is what a scrape shows."""

    def __init__(self) -> None:
        self.stored_at = -math.inf
        """When the control plane last said that rows of ours are stored, by `time.monotonic`."""
        self.registry: CollectorRegistry = registry()
        self._rows = RowCounters(metrics.WORKER_ROWS, metrics.WORKER_TOKENS, self.registry)
        self._retries = counter(metrics.WORKER_RETRIES, self.registry)
        self._rows.expect()
        for verdict in Verdict:
            if verdict is not Verdict.KEEP:
                self._retries.labels(verdict.name.lower())

    def stored(self, part: Part) -> None:
        """Count the rows of a part that the control plane has stored."""
        self.stored_at = time.monotonic()
        self._rows.stored(completed=part.completed, failed=part.failed, usage=part.usage.to_domain())

    def again(self, verdict: Verdict) -> None:
        """Count a row that runs again."""
        self._retries.labels(verdict.name.lower()).inc()
