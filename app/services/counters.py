"""What a process of the control side counts by itself, for Prometheus: once a call or a bell, never once a row."""

from prometheus_client import CollectorRegistry

from app.domain import metrics
from app.domain.contents import ContentKind
from app.schemas.segments import Part, PartVerdict
from config.metrics import RowCounters, counter, histogram, registry


class Counters:
    """One a yard; `registry` is what a scrape of the process shows."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = registry()
        self.http_seconds = histogram(metrics.HTTP_SECONDS, self.registry)
        self.bells = counter(metrics.BELLS, self.registry)
        self.control_work = histogram(metrics.CONTROL_WORK, self.registry)
        self.sweep_passes = counter(metrics.SWEEP_PASSES, self.registry)
        self.webhooks = counter(metrics.WEBHOOKS, self.registry)
        self._damaged = counter(metrics.DAMAGED, self.registry)
        self._rows = RowCounters(metrics.ROWS, metrics.TOKENS, self.registry)
        self._parts = counter(metrics.HAND_IN_PARTS, self.registry)
        for outcome in ("rung", "failed", "dropped"):
            self.bells.labels(outcome)  # a rate needs the zero before the first one
        for state in ("delivered", "waiting", "given_up", "dropped"):
            self.webhooks.labels(state)
        for kind in ContentKind:
            self._damaged.labels(kind.value)

    def expect(self, pool: str) -> None:
        """Show a pool's rows from zero on: a rate would miss the first ones otherwise."""
        self._rows.expect(pool)

    def damaged(self, kind: ContentKind) -> None:
        """Count a content that was found damaged or missing."""
        self._damaged.labels(kind.value).inc()

    def handed_in(self, pool: str, part: Part, verdict: PartVerdict) -> None:
        """Count a part of a hand-in after its commit; its rows when they were stored."""
        self._parts.labels(pool, verdict.value).inc()
        if verdict is PartVerdict.STORED:
            self._rows.stored(pool, completed=part.completed, failed=part.failed, usage=part.usage.to_domain())
