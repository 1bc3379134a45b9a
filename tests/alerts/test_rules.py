"""Every alert rule fires in the trouble that it is for, seen on a running yard, and no other one does."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.blobs.local import LocalBlobs
from app.local.broker import local_broker
from app.services import dispatch
from app.services import metrics as reading
from tests.alerts.promtool import RULES, Held, check, check_configuration, check_queries, wrong
from tests.alerts.scenes import NOBODY_ANSWERS, SCENES, Scene, Stage, until
from tests.databases import Databases
from tests.migrated import migrate
from tests.process_nodes import BrokerContainer
from tests.scraped import Scraped, scrape
from tests.served import serving

# kombu drops the connections to a broker that died, and leaves it to the collector to close their sockets.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerContainer]:
    container = BrokerContainer(local_broker(tmp_path / "broker"))
    container.start()
    yield container
    container.teardown()


@pytest.fixture
def stage(
    sqlite_databases: Databases, tmp_path: Path, broker: BrokerContainer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    monkeypatch.setattr(reading, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(dispatch, "PING_SECONDS", 0.2)
    monkeypatch.setattr(LocalBlobs, "free_bytes", lambda _self: 10**12)
    # Sweeps run when a scene says so; the API's own look for them comes when the scene is long over.
    settings = {"sweep_seconds": 24.0, "broker_url": broker.celeryconfig["url"]}
    url = sqlite_databases.copy_of(migrate)
    with serving(url, tmp_path / "data", **settings) as served, served.http() as http:
        found = Stage(served, broker, http, monkeypatch)
        found.sweep()
        until(lambda: scrape(http).get("gpuyard_broker_up") == 1)
        yield found


def test_the_rules_are_ones(tool: str) -> None:
    assert "SUCCESS" in check(tool)


def test_the_configuration_to_begin_with_is_one(tool: str) -> None:
    assert "SUCCESS" in check_configuration(tool, RULES.with_name("prometheus.yml"))


def test_the_queries_of_the_dashboard_are_ones(tool: str, tmp_path: Path) -> None:
    panels = json.loads((RULES.parents[1] / "grafana/gpuyard.json").read_text())["panels"]
    queries = [
        target["expr"].replace("$__rate_interval", "5m").replace("$pool", ".*")
        for panel in panels
        for target in panel.get("targets", [])
    ]
    assert f"SUCCESS: {len(queries)} rules found" in check_queries(tool, tmp_path, queries)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_scene_fires_its_alerts_and_no_other(
    tool: str, tmp_path: Path, stage: Stage, scene: Callable[[Stage], Scene]
) -> None:
    history = [Held(scrape(stage.http), minutes) for minutes in scene(stage)]
    assert not wrong(tool, tmp_path, history, set(SCENES[scene]))


def test_an_api_that_is_gone_is_told(tool: str, tmp_path: Path) -> None:
    there = Scraped("gpuyard_database_up 1.0\n")
    assert not wrong(tool, tmp_path, [Held(there, 5), Held(None, 10)], set(NOBODY_ANSWERS))
    assert wrong(tool, tmp_path, [Held(there, 15)], set(NOBODY_ANSWERS)), "and one that is there is not"
