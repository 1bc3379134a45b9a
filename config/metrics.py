"""How a process shows its figures: families made from the table of `app.domain.metrics`, and a port to scrape.

Each process has a registry of its own, and no figure is a global of a library.
"""

from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector

from app.domain.metrics import Kind, Metric

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


def family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
    """Make an empty family, to be filled at a scrape by `add_metric(label values, value)`."""
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name.removesuffix("_total"), metric.says, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.says, labels=metric.labels)


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
