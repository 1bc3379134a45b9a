"""`/metrics` of a running API: it follows the work, costs little, and tells nobody's business."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event
from sqlmodel import col, update

from app.db import metrics as metrics_sql
from app.db.store import DatabaseUnavailable
from app.db.tables import Worker
from app.domain.metrics import METRICS, Source
from app.domain.webhooks import networks
from app.schemas.webhooks import NewWebhookEndpoint
from app.schemas.workers import GpuSample, Heartbeat, HostSample
from app.services import control, webhooks
from app.services import metrics as reading
from tests.databases import Databases
from tests.hands import ANSWER, REFUSED, Hands, do_control_work
from tests.migrated import migrate
from tests.scraped import Scraped, scrape
from tests.served import Served, rows, serving

LONG = 30.0
GIB = 1024**3


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each scrape read anew."""
    monkeypatch.setattr(reading, "KEEP_SECONDS", 0.0)


def scraping(served: Served) -> httpx.Client:
    """A client whose key is good for metrics and nothing else."""
    return served.http(served.key("metrics"))


@pytest.fixture
def scraper(served: Served) -> Iterator[httpx.Client]:
    with scraping(served) as http:
        yield http


def test_webhooks_are_shown_while_they_wait_and_counted_by_what_became_of_each_try(
    served: Served, scraper: httpx.Client
) -> None:
    yard = replace(served.yard, webhooks=replace(served.yard.webhooks, networks=networks(["127.0.0.0/8"])))
    wanted = NewWebhookEndpoint(name="mine", url="http://127.0.0.1:9/", event_types=["batch.cancelled"])
    webhooks.create(yard, served.operator(), wanted)
    with served.http() as http:
        http.post(f"/v1/batches/{submitted(served, 1)}/cancel").raise_for_status()
    do_control_work(served)
    served.shift(seconds=30)
    found = scrape(scraper)
    assert found.get("gpuyard_webhooks_waiting") == 1
    assert 30 <= (found.get("gpuyard_webhook_wait_seconds") or 0) < 30 + LONG
    assert found.get("gpuyard_queued_jobs", pool="control") == 0
    assert found.get("gpuyard_webhook_tries_total", state="waiting") == 0

    do_control_work(served, claim=control.claim_delivery, yard=yard)
    last = replace(yard, limits=replace(yard.limits, webhook_max_tries=2))
    served.shift(seconds=30)
    do_control_work(served, claim=control.claim_delivery, yard=last)
    found = scrape(scraper)
    tries = {
        state: found.get("gpuyard_webhook_tries_total", state=state) for state in ("delivered", "waiting", "given_up")
    }
    assert tries == {"delivered": 0, "waiting": 1, "given_up": 1}
    assert (found.get("gpuyard_webhooks_waiting"), found.get("gpuyard_webhook_wait_seconds")) == (0, 0)


def submitted(served: Served, count: int, **more: object) -> str:
    """A batch that is validated."""
    with served.http() as http:
        file = http.post("/v1/files", files={"file": ("in.jsonl", rows(count))}, data={"purpose": "batch"}).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h", **more}
        batch_id: str = http.post("/v1/batches", json=body).json()["id"]
    return batch_id


def queue(found: Scraped) -> tuple[float | None, float | None, float | None]:
    return (
        found.get("gpuyard_queued_jobs", pool="gpu"),
        found.get("gpuyard_queued_jobs", pool="control"),
        found.get("gpuyard_batches", pool="gpu"),
    )


def test_figures_follow_a_batch_from_its_creation_to_its_end(served: Served, scraper: httpx.Client) -> None:
    scrape(scraper)  # events count from the first one
    submitted(served, 600)  # three shards of 256
    served.shift(seconds=30)
    found = scrape(scraper)
    assert queue(found) == (0, 1, 1)
    assert found.get("gpuyard_batches", state="validating") == 1
    assert 30 <= (found.get("gpuyard_queue_wait_seconds", pool="control") or 0) < 30 + LONG

    do_control_work(served)
    served.shift(seconds=30)
    found = scrape(scraper)
    assert queue(found) == (3, 0, 1)
    assert found.get("gpuyard_batches", state="validated") == 1
    assert 30 <= (found.get("gpuyard_queue_wait_seconds", pool="gpu") or 0) < 30 + LONG
    assert found.get("gpuyard_workers", pool="gpu") is None, "nobody is there"
    assert found.get("gpuyard_leases", pool="gpu") is None

    with closing(Hands(served)) as hands:
        batch_id, grants, path = hands.claim(want_rows=1)
        served.shift(seconds=20)
        found = scrape(scraper)
        assert queue(found) == (2, 0, 1)
        assert found.get("gpuyard_queue_wait_seconds", pool="gpu") == 0, "somebody works on it"
        assert found.get("gpuyard_workers", pool="gpu", state="active") == 1
        assert found.get("gpuyard_leases", pool="gpu", state="held") == 1
        assert 20 <= (found.get("gpuyard_lease_age_seconds", pool="gpu") or 0) < 20 + LONG
        assert 20 <= (found.get("gpuyard_lease_renewal_age_seconds", pool="gpu") or 0) < 20 + LONG
        assert found.get("gpuyard_leases_overdue", pool="gpu") == 0
        for grant in grants:
            hands.finish(batch_id, grant, path, lambda row: REFUSED if row % 10 == 0 else ANSWER)
        hands.work()
    do_control_work(served)
    found = scrape(scraper)
    assert queue(found) == (0, 0, None)
    assert found.get("gpuyard_rows_total", pool="gpu", outcome="completed") == 574
    assert found.get("gpuyard_rows_total", pool="gpu", outcome="failed") == 26
    assert found.all("gpuyard_tokens_total") == {
        ("cached", "gpu"): 574 * 2,
        ("input", "gpu"): 574 * 7,
        ("output", "gpu"): 574 * 3,
        ("reasoning", "gpu"): 574 * 1,
    }
    assert found.get("gpuyard_hand_in_parts_total", verdict="stored") == 3
    assert found.get("gpuyard_events_total", type="lease.reported") == 5, "three shards, two pieces of control work"
    assert found.get("gpuyard_events_total", type="batch.completed") == 1
    assert found.get("gpuyard_events_total", type="batch.failed") == 0, "a rate needs the zero"
    assert (found.get("gpuyard_blobs_free_bytes") or 0) > 0


def test_a_worker_shows_its_gpus_and_its_silence(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    with closing(Hands(served)) as hands:
        gpus = [
            GpuSample(index=0, name="A", memory_total=24 * GIB, memory_used=6 * GIB, utilization=50),
            GpuSample(index=1, name="A", error="gone"),
        ]
        beat = Heartbeat(boot_id=hands.boot_id, sample=HostSample(gpus=gpus, disk_free=7, spool_error="full"))
        hands.plane.heartbeat(hands.worker_id, beat, timeout_seconds=LONG)
    with scraping(served) as scraper:
        found = scrape(scraper)
        assert found.all("gpuyard_gpu_memory_used_bytes") == {("0", "gpu", "gpu1"): 6 * GIB}
        assert found.all("gpuyard_gpu_memory_total_bytes") == {("0", "gpu", "gpu1"): 24 * GIB}
        assert found.all("gpuyard_gpu_utilization_ratio") == {("0", "gpu", "gpu1"): 0.5}
        assert found.get("gpuyard_worker_disk_free_bytes", worker="gpu1") == 7
        assert found.get("gpuyard_worker_spool_full", worker="gpu1") == 1
        assert found.all("gpuyard_runtimes") == {("gpu", "alive"): 1}

        for seconds, state in ((55, "unreachable"), (10, "stale")):
            with served.yard.store.begin() as session:
                session.execute(update(Worker).values(last_seen_at=col(Worker.last_seen_at) - seconds * 1000))
            assert scrape(scraper).all("gpuyard_workers") == {("gpu", state): 1}
        assert scrape(scraper).all("gpuyard_gpu_memory_used_bytes") == {}, "what it said is no figure of now"


def test_calls_are_timed_by_our_own_names_only(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http() as http:
        assert http.get("/v1/batches/batch_of-nobody").status_code == 404
        assert http.get("/secret/path-of-somebody").status_code == 404
        assert http.request("PROPFIND", "/v1/batches").status_code == 405
        found = scrape(http)
        again = scrape(http)
    count = "gpuyard_http_request_seconds_count"
    assert found.get(count, method="GET", route="/v1/batches/{batch_id}", status="404") == 1
    assert found.get(count, method="GET", route="unknown", status="404") == 1
    assert found.get(count, method="unknown", status="405") == 1
    assert again.get(count, route="/metrics", status="200") == 1
    assert "somebody" not in again.text
    assert "batch_of-nobody" not in again.text
    assert "PROPFIND" not in again.text


def test_only_the_operators_keys_for_metrics_read_them(served_on_sqlite: Served) -> None:
    for key, status in (
        (served_on_sqlite.key("metrics"), 200),
        (served_on_sqlite.key("admin"), 200),
        (served_on_sqlite.key("read"), 403),
        (served_on_sqlite.key("metrics", org="other"), 403),
        (served_on_sqlite.key("admin", org="other"), 403),
        (None, 401),
    ):
        with served_on_sqlite.http(key) as http:
            assert http.get("/metrics").status_code == status, key
    with served_on_sqlite.http(served_on_sqlite.key("metrics")) as http:
        assert http.get("/v1/batches").status_code == 403


def test_nothing_on_the_page_is_an_orgs_own(served_on_sqlite: Served) -> None:
    key = served_on_sqlite.key("submit", org="acme-secret")
    with served_on_sqlite.http(key) as http:
        content = rows(3, model="model-secret")
        file = http.post("/v1/files", files={"file": ("file-secret", content)}, data={"purpose": "batch"}).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = http.post("/v1/batches", json={**body, "metadata": {"k": "meta-secret"}}).json()
    with closing(Hands(served_on_sqlite, "gpu1", "model-secret")), served_on_sqlite.http() as http:
        text = scrape(http).text
    assert 'gpuyard_batches{pool="gpu",state="validating"} 1.0' in text
    for word in ("secret", file["id"], batch["id"], "acme", served_on_sqlite.operator().org_id):
        assert word not in text


def test_the_page_holds_what_the_table_of_metrics_lists(served_on_sqlite: Served) -> None:
    submitted(served_on_sqlite, 3)
    do_control_work(served_on_sqlite)
    with closing(Hands(served_on_sqlite)) as hands, served_on_sqlite.http() as http:
        sample = HostSample(
            gpus=[GpuSample(index=0, name="A", memory_total=2, memory_used=1, utilization=1)], disk_free=1
        )
        hands.plane.heartbeat(hands.worker_id, Heartbeat(boot_id=hands.boot_id, sample=sample), timeout_seconds=LONG)
        batch_id, grants, path = hands.claim()
        scraped = scrape(http).own_names()
        for grant in grants:
            hands.finish(batch_id, grant, path, lambda _row: ANSWER)
        found = {**scraped, **scrape(http).own_names()}
    listed = {metric.name: frozenset(metric.labels) for metric in METRICS if metric.source is not Source.WORKER}
    assert found.items() <= listed.items()
    elsewhere = {"gpuyard_control_work_seconds", "gpuyard_broker_up", "gpuyard_broker_silent_seconds"}
    sweeps = {name for name in listed if name.startswith("gpuyard_sweep_")}
    assert listed.keys() - found.keys() <= elsewhere | sweeps


def test_many_scrapes_read_the_database_once(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "KEEP_SECONDS", 60.0)
    asked: list[str] = []
    with scraping(served_on_sqlite) as http:
        event.listen(
            served_on_sqlite.yard.store.engine,
            "before_cursor_execute",
            lambda *given: asked.append(str(given[2]).lower()),
        )
        for _ in range(5):
            scrape(http)
    assert len([statement for statement in asked if "from lease" in statement]) == 1


def test_what_is_beyond_the_bound_is_not_looked_at_and_the_page_says_so(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        submitted(served_on_sqlite, 1)
    with scraping(served_on_sqlite) as http:
        assert scrape(http).get("gpuyard_figures_cut") == 0
        monkeypatch.setattr(metrics_sql, "LIMIT", 2)
        found = scrape(http)
    assert found.get("gpuyard_figures_cut") == 1
    assert found.get("gpuyard_batches", state="validating") == 2
    assert found.get("gpuyard_queued_jobs", pool="control") == 2


def test_a_database_that_is_away_leaves_the_rest_of_the_page(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served_on_sqlite.http(served_on_sqlite.key("metrics")) as http:
        assert scrape(http).get("gpuyard_database_up") == 1

        def away(_session: object) -> None:
            raise DatabaseUnavailable("gone")

        monkeypatch.setattr(metrics_sql, "workers", away)
        with caplog.at_level(logging.CRITICAL):
            found = scrape(http)
        assert found.get("gpuyard_database_up") == 0
        assert found.get("gpuyard_queued_jobs", pool="control") is None
        assert found.get("gpuyard_http_request_seconds_count", route="/metrics", status="200") == 1
        monkeypatch.undo()
        until(lambda: scrape(http).get("gpuyard_database_up") == 1)


def test_sweeps_that_an_api_process_runs_are_shown_as_degraded(sqlite_databases: Databases, tmp_path: Path) -> None:
    with (
        serving(sqlite_databases.copy_of(migrate), tmp_path / "data", sweep_seconds=0.2) as served,
        served.http() as http,
    ):
        until(lambda: scrape(http).get("gpuyard_sweep_passes_total", sweep="lease-expiry", outcome="ended"))
        found, ready = scrape(http), http.get("/readyz")
    assert found.get("gpuyard_sweep_degraded", sweep="lease-expiry") == 1
    assert 0 <= (found.get("gpuyard_sweep_age_seconds", sweep="lease-expiry") or 0) < LONG
    assert ready.status_code == 200, "it is no reason to send nobody here"
    assert "lease-expiry" in ready.json()["degraded_sweeps"]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
