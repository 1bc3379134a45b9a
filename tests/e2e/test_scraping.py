"""Metrics of processes as they are started by their commands: API, control worker, GPU workers."""

import re
from pathlib import Path

import httpx
import pytest

from tests.e2e.rows import marked
from tests.e2e.yard import Yard, until
from tests.scraped import Scraped, scrape

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

ROWS = 40
_SHOWN = re.compile(r"metrics\.shown.*?port=\S*?(\d+)")


def page_of(log: Path) -> Scraped:
    """Scrape the port that a process's log names."""
    found = until(lambda: _SHOWN.search(re.sub(r"\x1b\[[0-9;]*m", "", log.read_text())), f"{log.name} names its port")
    with httpx.Client(base_url=f"http://127.0.0.1:{found[1]}", timeout=30) as http:
        return scrape(http)


def rows_of(yard: Yard) -> float:
    pages = [page_of(yard.workers[name].log) for name in ("one", "two")]
    return sum(page.get("gpuyard_worker_rows_total", outcome="completed") or 0 for page in pages)


def test_what_the_workers_did_stands_on_their_pages_and_on_the_apis(shared_yard: Yard) -> None:
    before = scrape(shared_yard.http).get("gpuyard_rows_total", pool="gpu", outcome="completed") or 0
    there = rows_of(shared_yard)
    shared_yard.submit(marked("scraped", ROWS)).ended()
    after = scrape(shared_yard.http)
    assert (after.get("gpuyard_rows_total", pool="gpu", outcome="completed") or 0) - before == ROWS
    assert rows_of(shared_yard) - there == ROWS
    assert (after.get("gpuyard_workers", pool="gpu", state="active") or 0) >= 2
    until(lambda: scrape(shared_yard.http).get("gpuyard_broker_up") == 1, "the API hears its broker")

    log = shared_yard.installation.data / "logs/control.log"
    until(lambda: page_of(log).get("gpuyard_broker_up") == 1, "the control worker hears its broker")
    control = page_of(log)
    assert (control.get("gpuyard_control_work_seconds_count", verb="finalize", outcome="ended") or 0) >= 1
    assert (control.get("gpuyard_sweep_passes_total", sweep="lease-expiry", outcome="ended") or 0) >= 1
