"""A page of metrics as a test reads it, by the parser that Prometheus' own client library has."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import httpx
from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]
SYSTEM = "process_"
"""What the client library says of the process by itself begins so."""
_SUFFIXES = ("_bucket", "_count", "_sum", "_created")


@dataclass(frozen=True)
class Scraped:
    """One scrape."""

    text: str

    @cached_property
    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Each sample: name, labels, value."""
        return [
            (sample.name, dict(sample.labels), float(sample.value))
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        ]

    def get(self, name: str, **labels: str) -> float | None:
        """The one value of a metric with these labels among its own; None: there is none."""
        found = [value for sample, own, value in self.samples if sample == name and labels.items() <= own.items()]
        assert len(found) < 2, f"{name} {labels} says {found}"
        return found[0] if found else None

    def all(self, name: str) -> dict[tuple[str, ...], float]:
        """Every value of a metric by its label values, in the order of the labels' names."""
        return {
            tuple(own[label] for label in sorted(own)): value for sample, own, value in self.samples if sample == name
        }

    def own_names(self) -> dict[str, frozenset[str]]:
        """Our metrics on the page, with the names of their labels."""
        found: dict[str, frozenset[str]] = {}
        for name, own, _ in self.samples:
            if name.startswith(SYSTEM) or name.endswith("_created"):
                continue
            base = next((name.removesuffix(end) for end in _SUFFIXES if name.endswith(end)), name)
            found[base] = frozenset(own) - {"le"}
        return found


def scrape(http: httpx.Client, path: str = "/metrics") -> Scraped:
    """Read a page."""
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scraped(answer.text)
