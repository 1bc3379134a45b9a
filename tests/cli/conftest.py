"""Installations: one a module for `up` itself, one for all commands; and waiting with a bound."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import Commands
from tests.fakes.public_api import FakePublicApi
from tests.installation import Installation
from tests.kept import kept

RUNTIMES = (
    "fake:?models=quick",
    "fake:?models=slow&latency_ms=250&slots=2",
    "fake:?models=broken&fail_every=2&fail_status=500",
    "fake:?models=refusing&fail_every=1&fail_status=400",
)
"""One model each: `quick`, `slow`, one that answers every second row with an error, and one that answers all so."""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("installation"))
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A whole installation that runs as long as the commands' tests do."""

    @contextmanager
    def start() -> Iterator[Installation]:
        made = Installation(tmp_path_factory.mktemp("served"))
        made.up(*(part for url in RUNTIMES for part in ("--runtime-url", url)))
        yield made
        made.stop(signal.SIGINT)

    return kept.get("served", start)


@pytest.fixture
def yard(served: Installation, tmp_path: Path) -> Commands:
    """Commands that know the installation by two settings, as a user's machine does."""
    ready = served.ready()
    return Commands(tmp_path, {"GPUYARD_SERVER_URL": ready["url"], "GPUYARD_API_KEY": ready["api_key"]})


@pytest.fixture
def api() -> Iterator[FakePublicApi]:
    """A server that says what the test wants."""
    with FakePublicApi() as found:
        yield found


@pytest.fixture
def told(api: FakePublicApi, tmp_path: Path) -> Commands:
    """Commands that talk to `api`."""
    return Commands(tmp_path, {"GPUYARD_SERVER_URL": api.url, "GPUYARD_API_KEY": "gk-any"})
