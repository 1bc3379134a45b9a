"""`celery -A app worker -Q gpu` as a process: real broker, real signals; the control plane is a fake on a socket."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from pytest_celery import CeleryBrokerCluster
from redis import Redis

from tests.fakes.control_plane import FakeControlPlane, refusal, rows
from tests.process_nodes import BrokerContainer, ProcessContainer

Until = Callable[..., None]
SLOW = "fake:?latency_ms=60000"


@pytest.fixture
def plane() -> Iterator[FakeControlPlane]:
    with FakeControlPlane() as found:
        yield found


@pytest.fixture
def broker(celery_broker_cluster: CeleryBrokerCluster) -> BrokerContainer:
    container: BrokerContainer = celery_broker_cluster[0].container
    return container


@pytest.fixture
def start(
    plane: FakeControlPlane, broker: BrokerContainer, tmp_path: Path
) -> Iterator[Callable[..., ProcessContainer]]:
    """Start the plain command; the settings come from the environment."""
    started: list[ProcessContainer] = []

    def begin(
        runtime: str = "fake:", *, lines: tuple[str, ...] = ("Connected to", " ready."), **settings: str
    ) -> ProcessContainer:
        container = ProcessContainer(
            "gpu-1",
            [sys.executable, "-m", "celery", "-A", "app", "worker", "-Q", "gpu"],
            folder=tmp_path,
            ready=lambda found: all(line in found.logs() for line in lines),
        )
        chosen = {
            "server_url": plane.url,
            "api_key": "gk-test",
            "broker_url": broker.celeryconfig["url"],
            "worker_name": "gpu-1",
            "state_dir": str(tmp_path / "state"),
            "runtime": "fake",
            "runtime_url": runtime,
            "max_concurrent_prompts": "4",
        }
        container.celeryconfig = {"env": {f"GPUYARD_{k.upper()}": v for k, v in (chosen | settings).items()}}
        started.append(container)
        container.start()
        return container

    yield begin
    for container in started:
        container.teardown()


def exit_code(container: ProcessContainer, seconds: float = 30) -> int:
    assert container._process is not None
    return container._process.wait(seconds)


def test_a_message_brings_work_and_sigterm_a_good_end(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer], celery_setup_app: Celery
) -> None:
    plane.timing |= {"renew_seconds": 60.0}
    worker = start()
    plane.give_batch(list(rows(8)))
    celery_setup_app.send_task("run_batch", args=["batch_1"], queue="gpu")
    plane.wait(lambda: len(plane.stored) == 8)
    os.kill(worker.pid, signal.SIGTERM)
    assert exit_code(worker) == 0, worker.logs()
    assert [call.body["reason"] for call in plane.called("bye")] == ["signal"]


def test_a_busy_worker_leaves_the_next_message_in_the_queue(
    plane: FakeControlPlane,
    start: Callable[..., ProcessContainer],
    celery_setup_app: Celery,
    redis: Redis,
    until: Until,
) -> None:
    worker = start(SLOW)
    plane.give_batch(list(rows(8)), shard_rows=8)
    celery_setup_app.send_task("run_batch", args=["batch_1"], queue="gpu")
    until(lambda: "Canceling queue gpu" in worker.logs())
    celery_setup_app.send_task("run_batch", args=["batch_2"], queue="gpu")
    beats = len(plane.called("heartbeat"))
    plane.wait(lambda: len(plane.called("heartbeat")) > beats + 5)
    assert redis.llen("gpu") == 1


def test_a_stop_over_the_broker_is_asked_of_the_control_plane_at_once(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer], celery_setup_app: Celery, until: Until
) -> None:
    plane.timing |= {"renew_seconds": 60.0}
    start(SLOW)
    until(lambda: celery_setup_app.control.ping(timeout=1.0))  # what is told before it listens, it hears with a beat
    plane.give_batch(list(rows(4)))
    celery_setup_app.send_task("run_batch", args=["batch_1"], queue="gpu")
    plane.wait(lambda: plane.leases)
    with plane.changed:
        plane.leases[1].state = "stopping"
    celery_setup_app.control.broadcast("gpuyard_stop", arguments={"batch_id": "batch_1"})
    plane.wait(lambda: plane.states() == {1: "released"}, 30)  # well before the next beat


def test_a_call_over_the_broker_brings_a_heartbeat_and_its_answer_a_look(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer], celery_setup_app: Celery, until: Until
) -> None:
    plane.timing |= {"renew_seconds": 60.0}
    start()
    until(lambda: celery_setup_app.control.ping(timeout=1.0))
    assert {call.body["looked"] for call in plane.called("heartbeat")} == {0}
    plane.look = 1234
    celery_setup_app.control.broadcast("gpuyard_call")
    plane.wait(lambda: plane.called("heartbeat")[-1].body["looked"] == 1234, 30)  # well before the next beat
    assert plane.called("heartbeat")[-1].body["runtimes"]


def test_a_worker_whose_broker_is_frozen_still_beats_and_still_ends(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer], broker: BrokerContainer
) -> None:
    worker = start()
    os.kill(broker.pid, signal.SIGSTOP)
    beats = len(plane.called("heartbeat"))
    plane.wait(lambda: len(plane.called("heartbeat")) > beats + 5)
    os.kill(worker.pid, signal.SIGTERM)
    plane.wait(lambda: plane.called("bye"))
    assert exit_code(worker) == 0, worker.logs()
    assert "worker.hangs" in worker.logs(), "Celery waits for its broker, and the watchdog does not"


def test_a_worker_that_never_met_its_broker_beats_and_ends_without_a_trace(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer]
) -> None:
    worker = start(lines=("Cannot connect to", "worker.ready"), broker_url="redis://127.0.0.1:1/0")
    plane.wait(lambda: len(plane.called("heartbeat")) > 2)
    os.kill(worker.pid, signal.SIGTERM)
    assert exit_code(worker) == 0, worker.logs()
    assert len(plane.called("bye")) == 1
    assert "Error on stopping" not in worker.logs()


def test_a_worker_that_has_lost_its_broker_polls_until_it_is_back(
    plane: FakeControlPlane,
    start: Callable[..., ProcessContainer],
    broker: BrokerContainer,
    celery_setup_app: Celery,
    until: Until,
) -> None:
    """Heartbeats are a minute apart here, so nothing but polls and messages says that there is work."""
    plane.timing |= {"renew_seconds": 60.0, "grace_seconds": 100.0, "toleration_seconds": 400.0}
    worker = start(wait_max_seconds="0.5")
    assert plane.called("poll") == []
    broker.kill()
    plane.wait(lambda: plane.called("poll"), 30)
    plane.give_batch(list(rows(8)))
    plane.wait(lambda: len(plane.stored) == 8)

    connected = worker.logs().count("Connected to")
    broker.start()
    until(lambda: worker.logs().count("Connected to") > connected, seconds=40)
    plane.give_batch(list(rows(4)), batch_id="batch_2")
    celery_setup_app.send_task("run_batch", args=["batch_2"], queue="gpu")
    plane.wait(lambda: len(plane.stored) == 4)
    until(lambda: worker.logs().count("polls.ended") == 1)
    polls = len(plane.called("poll")) + 1  # one may be under way
    plane.never(lambda: len(plane.called("poll")) > polls, 1.5, after=lambda: worker.logs().count("polls.ended") == 1)
    os.kill(worker.pid, signal.SIGTERM)
    assert exit_code(worker) == 0, worker.logs()


def test_a_worker_that_has_not_found_its_broker_yet_works_by_polls(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer]
) -> None:
    plane.timing |= {"renew_seconds": 60.0, "grace_seconds": 100.0, "toleration_seconds": 400.0}
    start(lines=("Cannot connect to", "worker.ready"), broker_url="redis://127.0.0.1:1/0")
    plane.wait(lambda: plane.called("poll"), 30)
    plane.give_batch(list(rows(4)))
    plane.wait(lambda: len(plane.stored) == 4)


def test_a_dismissed_worker_exits_1(plane: FakeControlPlane, start: Callable[..., ProcessContainer]) -> None:
    plane.give_batch(list(rows(4)))
    worker = start(SLOW)
    plane.wait(lambda: plane.leases)
    plane.next("heartbeat", refusal(401, "invalid_api_key", "this key was revoked"))
    assert exit_code(worker) == 1
    assert "this key was revoked" in worker.logs()


def test_a_worker_that_is_refused_at_hello_exits_1(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer]
) -> None:
    plane.next("register", refusal(409, "name_taken", "another worker lives under this name"))
    with pytest.raises(AssertionError, match="another worker lives under this name"):
        start()


def test_a_remote_shutdown_says_bye_too(
    plane: FakeControlPlane, start: Callable[..., ProcessContainer], celery_setup_app: Celery
) -> None:
    worker = start()
    celery_setup_app.control.shutdown()
    assert exit_code(worker) == 0, worker.logs()
    assert len(plane.called("bye")) == 1
