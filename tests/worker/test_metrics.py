"""A running worker's page of metrics, scraped over its port."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from app.domain.metrics import METRICS, Source
from app.domain.rows import Blame, Reply
from app.worker.agent import Agent
from tests.fakes.control_plane import Answer, FakeControlPlane, Hang, rows
from tests.fakes.steered_executor import SteeredExecutor
from tests.logged import LineOf, logged
from tests.scraped import Scraped, scrape

StartAgent = Callable[..., Agent]
LONG = 30.0


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


@pytest.fixture
def page(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG) as http:
        yield http


def until(page: httpx.Client, condition: Callable[[Scraped], object]) -> Scraped:
    end = time.monotonic() + LONG
    while not condition(found := scrape(page)):
        assert time.monotonic() < end, found.text
        time.sleep(0.05)
    return found


def test_it_says_what_it_does_now_and_what_it_has_done(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, port: int, page: httpx.Client
) -> None:
    runtime.answers[0] = lambda: Reply(status=400, body=b'{"error":{}}', request_id="r")
    agent = start_agent(metrics_port=port)
    found = scrape(page)
    assert found.get("gpuyard_worker_info", worker="gpu-1", pool="gpu") == 1
    assert found.get("gpuyard_worker_phase", phase="ready") == 1
    assert found.get("gpuyard_worker_rows_total", outcome="completed") == 0

    plane.give_batch(list(rows(12)), shard_rows=4)
    runtime.wait(lambda: len(runtime.running) == 4)
    found = until(page, lambda found: found.get("gpuyard_worker_rows_waiting"))
    assert found.get("gpuyard_worker_rows_in_flight") == 4
    assert found.get("gpuyard_worker_rows_in_flight_limit") == 4
    assert found.get("gpuyard_worker_batches") == 1
    assert (found.get("gpuyard_worker_leases") or 0) >= 1
    assert 0 < (found.get("gpuyard_worker_lease_unconfirmed_seconds") or 0) < LONG
    assert sum(found.all("gpuyard_worker_runtime_rows").values()) == 4

    runtime.let_all()
    plane.wait(lambda: len(plane.stored) == 12)
    found = until(page, lambda found: found.get("gpuyard_worker_rows_total", outcome="completed") == 11)
    assert found.get("gpuyard_worker_rows_total", outcome="failed") == 1
    assert found.get("gpuyard_worker_tokens_total", kind="output") == 0
    assert found.get("gpuyard_worker_runtime_state", state="closed") == 1
    assert found.get("gpuyard_worker_runtime_state", state="dead") == 0

    agent.on_signal()
    assert agent.join(LONG)
    with pytest.raises(httpx.ConnectError):
        page.get("/metrics")


def test_it_counts_rows_that_run_again_and_shows_an_open_breaker(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, port: int, page: httpx.Client
) -> None:
    refusal = Reply(status=503, body=b'{"error":{}}', request_id="r", blame=Blame.RUNTIME)
    runtime.answers.update(dict.fromkeys(range(4), lambda: refusal))
    runtime.let_all()
    start_agent(metrics_port=port)
    plane.give_batch(list(rows(4)))
    until(page, lambda found: found.get("gpuyard_worker_runtime_state", state="open"))
    # The third refusal opens it; that its row is to run again is counted a moment later.
    until(page, lambda found: sum(found.all("gpuyard_worker_row_retries_total").values()) >= 3)
    runtime.answers.clear()
    until(page, lambda found: found.get("gpuyard_worker_runtime_state", state="closed"))


def test_it_shows_a_control_plane_that_does_not_answer(
    plane: FakeControlPlane, start_agent: StartAgent, port: int, page: httpx.Client
) -> None:
    start_agent(metrics_port=port)
    until(page, lambda found: found.get("gpuyard_worker_unreachable_seconds") == 0)
    plane.next("heartbeat", *[Answer(503)] * 1000)
    until(page, lambda found: (found.get("gpuyard_worker_unreachable_seconds") or 0) > 0)


def test_a_worker_that_nobody_welcomes_can_be_looked_at(
    plane: FakeControlPlane, start_agent: StartAgent, port: int, page: httpx.Client
) -> None:
    """BO-03: before its hello is taken, for as long as that takes."""
    plane.next("register", *[Answer(503)] * 4)
    answered = threading.Event()
    plane.next("register", Hang(answered))
    starting = threading.Thread(target=start_agent, kwargs={"metrics_port": port}, daemon=True)
    starting.start()
    try:
        plane.wait(lambda: len(plane.called("register")) == 5)
        found = until(page, lambda found: found.get("gpuyard_worker_phase", phase="booting") == 1)
        assert found.get("gpuyard_worker_runtime_state", state="closed") == 1
        assert found.get("gpuyard_worker_spool_files") == 0
        assert found.get("gpuyard_worker_unreachable_seconds") is None, "to a container's health check it is not well"
        assert found.get("gpuyard_worker_leases") is None
    finally:
        answered.set()
        starting.join(LONG)
    until(page, lambda found: found.get("gpuyard_worker_phase", phase="ready") == 1)
    found = scrape(page)
    assert (found.get("gpuyard_worker_unreachable_seconds"), found.get("gpuyard_worker_leases")) == (0, 0)


def test_its_page_holds_what_the_table_of_metrics_lists(start_agent: StartAgent, port: int, page: httpx.Client) -> None:
    start_agent(metrics_port=port)
    listed = {metric.name: frozenset(metric.labels) for metric in METRICS if metric.source is Source.WORKER}
    found = scrape(page).own_names()
    assert found.items() <= listed.items()
    of_rows_and_gpus = {"gpuyard_worker_tokens_total"} | {name for name in listed if "_gpu_" in name}
    assert listed.keys() - found.keys() <= of_rows_and_gpus


def test_a_port_that_is_taken_costs_the_page_and_nothing_else(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent, port: int
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        start_agent(metrics_port=port)
        runtime.let_all()
        plane.give_batch(list(rows(4)))
        plane.wait(lambda: len(plane.stored) == 4)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LineOf]:
    """The worker's log as JSON; gives the first line of an event."""
    with logged("worker", tmp_path / "log") as line_of:
        yield line_of


def test_its_lines_name_worker_batch_job_lease_and_the_call_they_are_about(
    log: LineOf,
    plane: FakeControlPlane,
    runtime: SteeredExecutor,
    start_agent: StartAgent,
) -> None:
    def defect() -> Reply:
        logging.getLogger("a.library").warning("something odd in a row")
        raise ZeroDivisionError

    runtime.answers[0] = defect
    runtime.let_all()
    start_agent()
    plane.give_batch(list(rows(4)))
    plane.wait(lambda: len(plane.stored) == 4)
    who = {"process": "worker", "worker": "gpu-1", "worker_id": "wrk_1"}
    row = {"batch_id": "batch_1", "lease_id": 1, "job_id": 1}
    assert log("row.failed").items() >= (who | row).items()
    assert log("something odd in a row").items() >= (who | row).items(), "whoever says it"
    assert log("shard.ended").items() >= (who | row).items()

    plane.next("heartbeat", Answer(400, {"error": {"message": "no"}}))
    line = log("heartbeat.refused")
    sent = [call.headers["x-request-id"] for call in plane.called("heartbeat")]
    assert line["request_id"] in sent
    assert len(set(sent)) == len(sent)
