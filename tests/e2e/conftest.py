"""Yards of this room: starting one takes seconds, so tests that leave a yard as they found it share one."""

import logging
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.e2e.yard import Yard

for chatty in ("httpx", "httpx2"):  # figures are logged, and a line a request would bury them
    logging.getLogger(chatty).setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def shared_yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A yard on SQLite with Flower and two workers on the default pool, for tests that break nothing of it."""
    with Yard(tmp_path_factory.mktemp("shared-yard")) as yard:
        yard.start("--flower")
        yard.worker("one")
        yard.worker("two")
        yard.until_present("one", "two")
        yield yard


@pytest.fixture(scope="session")
def single(shared_yard: Yard) -> str:
    """A pool of the shared yard with one worker."""
    return _pool(shared_yard, "single", "alone")


@pytest.fixture(scope="session")
def deserted(shared_yard: Yard) -> str:
    """A pool of the shared yard that has no worker at all."""
    return _pool(shared_yard, "deserted")


def _pool(yard: Yard, name: str, *workers: str) -> str:
    yard.http.post("/v1/pools", json={"name": name}).raise_for_status()
    for worker in workers:
        yard.worker(worker, pool=name)
    yard.until_present(*workers)
    return name


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def own_database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A database for one yard: its own SQLite file (None), then one on PostgreSQL."""
    if request.param == "sqlite":
        yield None
        return
    yield from _on_postgres(request)


@pytest.fixture(scope="module")
def own_postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database on PostgreSQL."""
    yield from _on_postgres(request)


def _on_postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    name = cluster.create()
    yield cluster.url(name)
    cluster.drop(name)
