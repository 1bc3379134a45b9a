"""The dashboard and the alert rules ask for figures that there are, by labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from app.domain.metrics import METRICS, Kind
from tests.alerts.scenes import NOBODY_ANSWERS, SCENES

OPERATE = Path(__file__).parents[2] / "docs/operate"
DASHBOARD = json.loads((OPERATE / "grafana/gpuyard.json").read_text())
ALERTS = [
    rule
    for group in yaml.safe_load((OPERATE / "prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PAGE = (OPERATE / "observability.md").read_text()
ADDED_BY_PROMETHEUS = {"instance", "job", "le"}
KNOWN = {metric.name: set(metric.labels) for metric in METRICS} | {
    metric.name + end: set(metric.labels)
    for metric in METRICS
    if metric.kind is Kind.HISTOGRAM
    for end in ("_bucket", "_sum", "_count")
}
_METRIC = re.compile(r"\bgpuyard_[a-z0-9_]+")
_MATCHER = re.compile(r"(\bgpuyard_[a-z0-9_]+)\{([^}]*)\}")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def panels() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


QUERIES = [
    *panels(),
    *((part["name"], part["definition"]) for part in DASHBOARD["templating"]["list"] if "definition" in part),
    *((rule["alert"], rule["expr"]) for rule in ALERTS),
]


@pytest.mark.parametrize(("where", "query"), QUERIES)
def test_a_query_names_metrics_and_labels_that_there_are(where: str, query: str) -> None:
    bare = re.sub(r'"[^"]*"', '""', query)
    names = set(_METRIC.findall(bare))
    assert names, f"{where} asks for nothing"
    assert names <= KNOWN.keys()
    for name, inside in _MATCHER.findall(bare):
        asked = {re.split("[=!]", part)[0] for part in inside.split(",")}
        assert asked <= KNOWN[name] | ADDED_BY_PROMETHEUS, f"{where}: {name} has no {asked - KNOWN[name]}"
    labels = {label.strip() for group in _BY.findall(bare) for label in group.split(",")} - {""}
    assert labels <= set[str]().union(*(KNOWN[name] for name in names)) | ADDED_BY_PROMETHEUS, where


def test_counters_are_asked_for_by_their_rise_and_gauges_never() -> None:
    rising = {name for name in KNOWN if name.endswith(("_total", "_bucket", "_sum", "_count"))}
    for where, query in QUERIES:
        risen = set(re.findall(r"(?:rate|increase)\((gpuyard_[a-z0-9_]+)", query))
        assert risen == set(_METRIC.findall(query)) & rising, where


def test_every_alert_has_a_scene_that_fires_it_and_a_line_in_the_docs() -> None:
    names = {rule["alert"] for rule in ALERTS}
    assert names == {alert for alerts in SCENES.values() for alert in alerts} | set(NOBODY_ANSWERS)
    for rule in ALERTS:
        assert rule["alert"] in PAGE
        assert {"summary", "action"} == rule["annotations"].keys()
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_every_panel_has_its_place() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
