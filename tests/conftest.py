"""What every test stands on: closed sockets, and databases of both kinds."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from app.db.store import Store
from tests.cluster import Cluster
from tests.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.engines import share_engines
from tests.kept import kept
from tests.migrated import migrate
from tests.sockets import close_by_room
from tests.spent import Spent
from tests.turns import TwoKinds, file_of, longest_first, together

LEFT_OUT = ("alerts", "docker", "hosts", "long", "page", "proxy", "tenants", "vllm")


def pytest_configure(config: pytest.Config) -> None:
    """Say at the end where the time went, and do not spend it on what each test would do again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it starts in the background ignore Ctrl-C, and so would each command that a test starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Spent(keep=config.getoption("keep_seconds")))
    share_engines()
    _forget_loggers()


def _forget_loggers() -> None:
    """Have no logger of a test process keep to what `config.logging.configure` said once: that file is closed."""
    usual = structlog.configure

    def configure(*settings: Any, **named: Any) -> None:
        usual(*settings, **named | {"cache_logger_on_first_use": False})

    structlog.configure = configure


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run of everything renew what tests.turns orders files by."""
    parser.addoption("--keep-seconds", action="store_true", help="write tests/seconds.txt anew")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> TwoKinds | None:
    """Hand out files as tests.turns says."""
    return TwoKinds(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)  # folders mark their tests first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long or needs a machine, vLLM, nginx, browser, Docker or network, unless asked for."""
    unasked = [mark for mark in LEFT_OUT if mark not in config.getoption("markexpr")]
    left_out = {item for item in items if any(item.get_closest_marker(mark) for mark in unasked)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    longest_first(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Close sockets before any fixture of the test is made."""
    close_by_room(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End what the files of one kind share when the next test is of another."""
    try:
        yield
    finally:
        if nextitem is None or together(file_of(nextitem)) != together(file_of(item)):
            kept.close()


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition, at most so long."""

    def wait(condition: Callable[[], object], *, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come true"
            time.sleep(0.03)

    return wait


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of this test process, started when the first test asks for it."""
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def _sqlite_templates(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[object, Path], Path]:
    return {}, tmp_path_factory.mktemp("sqlite-templates")


@pytest.fixture(scope="session")
def _postgres_templates() -> dict[object, str]:
    return {}


@pytest.fixture
def sqlite_databases(tmp_path: Path, _sqlite_templates: tuple[dict[object, Path], Path]) -> Databases:
    """SQLite files, for a test that is about SQLite."""
    return SqliteDatabases(tmp_path, *_sqlite_templates)


@pytest.fixture
def postgres_databases(postgres_cluster: Cluster, _postgres_templates: dict[object, str]) -> Iterator[Databases]:
    """PostgreSQL databases, for a test that is about PostgreSQL; dropped after it."""
    databases = PostgresDatabases(postgres_cluster, _postgres_templates)
    yield databases
    databases.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def databases(request: pytest.FixtureRequest) -> Databases:
    """Databases of both kinds: the test runs once with each."""
    found: Databases = request.getfixturevalue(f"{request.param}_databases")
    return found


@pytest.fixture
def database_url(databases: Databases) -> str:
    """The SQLAlchemy URL of an empty database, SQLite and then PostgreSQL."""
    return databases.empty()


@pytest.fixture
def store(databases: Databases) -> Iterator[Store]:
    """An open store on a migrated, empty database; SQLite and then PostgreSQL."""
    opened = Store(databases.copy_of(migrate))
    yield opened
    opened.close()
