"""How a process shows its figures: families made from the table of `app.domain.metrics`, and a port to scrape.

Each process has a registry of its own, and no figure is a global of a library.
"""

from collections.abc import Callable, Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector

from app.domain.metrics import Kind, Metric
from app.domain.rows import Usage

Family = GaugeMetricFamily | CounterMetricFamily
Labels = tuple[str, ...]
"""The values of a metric's labels, in their order."""
_log = structlog.get_logger("gpuyard.metrics")
# The library would show beside each counter when it was made: half of the page, which Prometheus does not read.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's


def registry() -> CollectorRegistry:
    """Make a process's registry; it begins with what the system says of the process: CPU, memory, open files."""
    made = CollectorRegistry(support_collectors_without_names=True)
    ProcessCollector(registry=made)
    return made


def counter(metric: Metric, into: CollectorRegistry) -> Counter:
    """Make a counter that code counts up."""
    return Counter(metric.name.removesuffix("_total"), metric.says, metric.labels, registry=into)


def histogram(metric: Metric, into: CollectorRegistry) -> Histogram:
    """Make a histogram that code feeds."""
    return Histogram(metric.name, metric.says, metric.labels, buckets=metric.buckets, registry=into)


class RowCounters:
    """Stored rows and their tokens, as whoever hands them in and whoever stores them count them: once a hand-in."""

    def __init__(self, rows: Metric, tokens: Metric, into: CollectorRegistry) -> None:
        self._rows = counter(rows, into)
        self._tokens = counter(tokens, into)

    def expect(self, *labels: str) -> None:
        """Show rows under `labels`, which stand before the outcome, from zero on: a rate would miss the first ones."""
        for outcome in ("completed", "failed"):
            self._rows.labels(*labels, outcome)

    def stored(self, *labels: str, completed: int, failed: int, usage: Usage) -> None:
        """Count rows that were stored."""
        self._rows.labels(*labels, "completed").inc(completed)
        self._rows.labels(*labels, "failed").inc(failed)
        for kind, count in (
            ("input", usage.input_tokens),
            ("cached", usage.cached_tokens),
            ("output", usage.output_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            self._tokens.labels(*labels, kind).inc(count)


def family(metric: Metric, values: Mapping[Labels, float]) -> Family:
    """Make what a scrape shows of a metric: a value for each of its label values."""
    made: Family
    if metric.kind is Kind.COUNTER:
        made = CounterMetricFamily(metric.name.removesuffix("_total"), metric.says, labels=metric.labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.says, labels=metric.labels)
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made


def figure(metric: Metric, value: float) -> Family:
    """Make what a scrape shows of a metric without labels."""
    return family(metric, {(): value})


def open_port(shown: CollectorRegistry, host: str, port: int) -> Callable[[], None]:
    """Answer scrapes on `host:port` (0: a free one, which the log names); gives what closes it.

    A port that cannot be had costs the figures and nothing else: a second worker on the machine reads the same file.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=shown)
    except OSError as error:
        _log.warning("metrics.no_port", host=host, port=port, why=str(error))
        return lambda: None
    _log.info("metrics.shown", host=host, port=server.server_port)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(1.0)

    return close
