"""Yards of this room: starting one takes seconds, so tests that leave a yard as they found it share one."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.cluster import Cluster
from tests.e2e.yard import Yard
from tests.kept import kept

for chatty in ("httpx", "httpx2"):  # figures are logged, and a line a request would bury them
    logging.getLogger(chatty).setLevel(logging.WARNING)


@pytest.fixture(scope="module")
def shared_yard(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """A yard on SQLite with Flower and two workers on the default pool, for tests that break nothing of it."""

    @contextmanager
    def start() -> Iterator[Yard]:
        with Yard(tmp_path_factory.mktemp("shared-yard"), metrics_port=0) as yard:
            yard.start("--flower")
            yard.worker("one")
            yard.worker("two")
            yard.until_present("one", "two")
            yield yard

    return kept.get("shared yard", start)


@pytest.fixture(scope="module")
def large_yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A yard on SQLite with the default timings and one worker, each module's own, for batches of many rows."""
    rows = max(int(os.environ.get("GPUYARD_TEST_ROWS", "0")), 50_000)
    with Yard(tmp_path_factory.mktemp("large-yard"), timing={}, max_rows=rows) as yard:
        yard.start()
        yard.worker("one")
        yard.until_present("one")
        yield yard


@pytest.fixture(scope="module")
def breakable_yard(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """A yard on SQLite, for tests that take parts of it away and bring them back. Each module brings its workers."""

    @contextmanager
    def start() -> Iterator[Yard]:
        with Yard(tmp_path_factory.mktemp("breakable"), shard_rows=64, stand_in_seconds=2) as yard:
            yield yard.start()

    return kept.get("breakable yard", start)


@pytest.fixture
def single(shared_yard: Yard) -> str:
    """A pool of the shared yard with one worker."""
    return _pool(shared_yard, "single", "alone")


@pytest.fixture(params=["celery", "http"])
def alone(request: pytest.FixtureRequest, shared_yard: Yard) -> str:
    """A pool of the shared yard with one worker, which hears of work by the broker, and then by polls."""
    transport: str = request.param
    return _pool(shared_yard, f"alone-{transport}", f"alone-{transport}", transport=transport)


@pytest.fixture
def deserted(shared_yard: Yard) -> str:
    """A pool of the shared yard that has no worker at all."""
    return _pool(shared_yard, "deserted")


def _pool(yard: Yard, name: str, *workers: str, transport: str = "celery") -> str:
    """Make a pool and its workers, unless an earlier test has."""
    if name not in {pool["name"] for pool in yard.http.get("/v1/pools").json()["data"]}:
        yard.http.post("/v1/pools", json={"name": name}).raise_for_status()
        for worker in workers:
            yard.worker(worker, pool=name, transport=transport)
        yard.until_present(*workers)
    return name


class Fleet(NamedTuple):
    """Where a yard keeps its state (None: its own SQLite file), and how its workers hear of work."""

    database_url: str | None
    transports: tuple[str, ...]


FLEET_SHARD_ROWS = 64
ON_POSTGRES = pytest.param("mixed-postgres", marks=[pytest.mark.postgres])
LATER_WITHOUT_BROKER = pytest.param("http-sqlite", marks=[pytest.mark.long])
LATER_ON_SQLITE = pytest.param("celery-sqlite", marks=[pytest.mark.long])
LATER_ON_POSTGRES = pytest.param("mixed-postgres", marks=[pytest.mark.postgres, pytest.mark.long])
"""What costs half a minute runs on one database by default, and on the other by `make test-long`."""


@pytest.fixture(scope="session", params=["celery-sqlite", LATER_WITHOUT_BROKER, ON_POSTGRES])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Each transport alone and both in one pool; on a database for one yard."""
    if request.param == "mixed-postgres":
        for url in _on_postgres(request):
            yield Fleet(url, ("celery", "http"))
            kept.close()  # before its database goes
        return
    yield Fleet(None, (request.param.partition("-")[0],))


@pytest.fixture(scope="module")
def fleet_yard(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Yard:
    """A yard for each fleet, for tests that break it and mend it. Each module brings its workers."""

    @contextmanager
    def start() -> Iterator[Yard]:
        with Yard(
            tmp_path_factory.mktemp("fleet-yard"),
            database_url=fleet.database_url,
            transports=fleet.transports,
            max_rows=50_000,
            shard_rows=FLEET_SHARD_ROWS,
        ) as yard:
            yield yard.start()

    return kept.get(fleet, start)


@pytest.fixture(scope="module")
def own_postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database on PostgreSQL."""
    yield from _on_postgres(request)


def _on_postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    name = cluster.create()
    yield cluster.url(name)
    cluster.drop(name)
