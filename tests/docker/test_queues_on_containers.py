"""The facts of Celery that the design stands on, once more: Redis and our image as pytest-celery's own containers."""

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from pytest_celery import CeleryBrokerCluster, CeleryTestSetup, CeleryWorkerContainer
from pytest_celery.vendors.redis.broker.api import RedisTestBroker
from pytest_docker_tools import container, fxtr
from redis import Redis

from config.celeryconfig import PUBLISHER_SOCKET_SECONDS, transport_options
from tests.broker import conftest as broker_room
from tests.broker import test_worker_configuration as facts
from tests.docker.stack import ROOT, WORKER

pytestmark = pytest.mark.usefixtures("images")
Until = Callable[..., None]
Notes = Callable[[], list[str]]

# What is true of processes must be true of containers.
notes, send = broker_room.notes, facts.send
test_a_busy_worker_leaves_the_next_message_in_the_queue = facts.test_a_busy_worker_leaves_the_next_message_in_the_queue
test_a_flushed_broker_costs_messages_and_nothing_else = facts.test_a_flushed_broker_costs_messages_and_nothing_else
test_a_worker_outlives_a_broker_that_was_killed = facts.test_a_worker_outlives_a_broker_that_was_killed


class YardContainer(CeleryWorkerContainer):
    """A worker of our image with the product's configuration, and the tests' tasks."""

    @classmethod
    def command(cls, *_: Any, **__: Any) -> list[str]:
        return ["celery", "-A", "tests.fakes.celery_app", "worker", "-n", "one@local", "-Q", "gpu"]

    @property
    def ready_prompt(self) -> str:
        return "one@local ready."


default_worker_container = container(
    image=WORKER,
    command=YardContainer.command(),
    environment=fxtr("worker_environment"),
    network="{default_pytest_celery_network.name}",
    volumes=fxtr("worker_volumes"),
    init=True,
    wrapper_class=YardContainer,
    timeout=60,
)


@pytest.fixture
def default_redis_broker_ports() -> dict[str, tuple[str, int]]:
    """A port that a killed broker has again when it is back."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"6379/tcp": ("127.0.0.1", probe.getsockname()[1])}


@pytest.fixture
def celery_broker_cluster(celery_redis_broker: RedisTestBroker) -> CeleryBrokerCluster:
    return CeleryBrokerCluster(celery_redis_broker)


@pytest.fixture
def celery_backend_cluster() -> None:
    """There is no result backend."""


@pytest.fixture
def worker_environment(celery_broker_cluster: CeleryBrokerCluster) -> dict[str, str]:
    return {"GPUYARD_BROKER_URL": celery_broker_cluster[0].config()["url"], "PYTHONPATH": "/checks"}


@pytest.fixture
def worker_volumes(tmp_path: Path) -> dict[str, dict[str, str]]:
    """The tests' tasks, and the folder in which they note what they did: under its own name, for anybody to write."""
    tmp_path.chmod(0o777)
    return {
        str(ROOT / "tests"): {"bind": "/checks/tests", "mode": "ro"},
        str(tmp_path): {"bind": str(tmp_path), "mode": "rw"},
    }


@pytest.fixture
def celery_setup_app(celery_broker_cluster: CeleryBrokerCluster) -> Iterator[Celery]:
    """The sender's app: the product's configuration, from outside of the containers' network."""
    app = Celery("sender", config_source="config.celeryconfig", set_as_current=False)
    app.conf.broker_url = celery_broker_cluster[0].config()["host_url"]
    app.conf.broker_transport_options = transport_options("sender", socket_seconds=PUBLISHER_SOCKET_SECONDS)
    yield app
    app.close()


@pytest.fixture
def redis(celery_broker_cluster: CeleryBrokerCluster) -> Iterator[Redis]:
    with Redis.from_url(celery_broker_cluster[0].config()["host_url"]) as client:
        yield client


def test_a_worker_that_was_killed_takes_what_waits_when_it_is_back(
    celery_setup: CeleryTestSetup, redis: Redis, tmp_path: Path, until: Until, notes: Notes
) -> None:
    send(celery_setup, "note", str(tmp_path), "before")
    until(lambda: notes() == ["before"])
    celery_setup.worker.kill(signal.SIGKILL)
    send(celery_setup, "note", str(tmp_path), "after")
    assert redis.llen("gpu") == 1
    celery_setup.worker.restart()
    until(lambda: notes() == ["before", "after"], seconds=30)


def test_sigterm_lets_a_task_end_and_takes_no_other(
    celery_setup: CeleryTestSetup, redis: Redis, tmp_path: Path, until: Until, notes: Notes
) -> None:
    send(celery_setup, "hold", str(tmp_path), "first")
    until(lambda: notes() == ["started-first"])
    celery_setup.worker.kill(signal.SIGTERM)
    until(lambda: "Warm shutdown" in celery_setup.worker.logs(), seconds=30)
    send(celery_setup, "note", str(tmp_path), "second")
    (tmp_path / "release").touch()
    ended = celery_setup.worker.container._container.wait(timeout=60)
    assert ended["StatusCode"] == 0, celery_setup.worker.logs()
    assert notes() == ["started-first", "ended-first"]
    assert redis.llen("gpu") == 1
