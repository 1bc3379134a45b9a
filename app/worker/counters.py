"""What a GPU worker counts for Prometheus: once a hand-in and once a row that runs again, never once a row."""

from prometheus_client import CollectorRegistry

from app.domain import metrics
from app.schemas.segments import Part
from app.worker.verdicts import Verdict
from config.metrics import counter, registry


class WorkerCounters:
    """One a process. Thread-safe; `registry` is what a scrape shows."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = registry()
        self._rows = counter(metrics.WORKER_ROWS, self.registry)
        self._tokens = counter(metrics.WORKER_TOKENS, self.registry)
        self._retries = counter(metrics.WORKER_RETRIES, self.registry)
        for outcome in ("completed", "failed"):
            self._rows.labels(outcome)  # a rate needs the zero before the first one
        for verdict in Verdict:
            if verdict is not Verdict.KEEP:
                self._retries.labels(verdict.name.lower())

    def stored(self, part: Part) -> None:
        """Count the rows of a part that the control plane has stored."""
        self._rows.labels("completed").inc(part.completed)
        self._rows.labels("failed").inc(part.failed)
        usage = part.usage
        for kind, count in (
            ("input", usage.input_tokens),
            ("cached", usage.cached_tokens),
            ("output", usage.output_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            self._tokens.labels(kind).inc(count)

    def again(self, verdict: Verdict) -> None:
        """Count a row that runs again."""
        self._retries.labels(verdict.name.lower()).inc()
