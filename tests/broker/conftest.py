"""A real broker and a real worker, as pytest-celery's nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from pytest_celery import CeleryBrokerCluster, CeleryTestBroker, CeleryTestWorker, CeleryWorkerCluster
from redis import Redis

from app.local.broker import local_broker
from config.celeryconfig import PUBLISHER_SOCKET_SECONDS, transport_options
from tests.process_nodes import BrokerContainer, WorkerContainer


@pytest.fixture
def celery_broker_cluster(tmp_path: Path) -> Iterator[CeleryBrokerCluster]:
    container = BrokerContainer(local_broker(tmp_path))
    container.start()
    yield CeleryBrokerCluster(CeleryTestBroker(container))
    container.teardown()


@pytest.fixture
def celery_backend_cluster() -> None:
    """There is no result backend."""


@pytest.fixture
def celery_worker_cluster(celery_broker_cluster: CeleryBrokerCluster, tmp_path: Path) -> Iterator[CeleryWorkerCluster]:
    url = celery_broker_cluster[0].config()["url"]
    container = WorkerContainer("one", broker_url=url, folder=tmp_path)
    container.start()
    yield CeleryWorkerCluster(CeleryTestWorker(container, app=None))
    container.teardown()


@pytest.fixture
def celery_setup_app(celery_broker_cluster: CeleryBrokerCluster) -> Iterator[Celery]:
    """The sender's app: the product's configuration."""
    app = Celery("sender", config_source="config.celeryconfig", set_as_current=False)
    app.conf.broker_url = celery_broker_cluster[0].config()["url"]
    app.conf.broker_transport_options = transport_options("sender", socket_seconds=PUBLISHER_SOCKET_SECONDS)
    yield app
    app.close()


@pytest.fixture
def redis(celery_broker_cluster: CeleryBrokerCluster) -> Iterator[Redis]:
    path = celery_broker_cluster[0].config()["url"].removeprefix("redis+socket://")
    with Redis(unix_socket_path=path) as client:
        yield client


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[], list[str]]:
    """What the tasks noted, in order, without the moments."""

    def read() -> list[str]:
        path = tmp_path / "notes"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    return read
