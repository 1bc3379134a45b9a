"""Machines of these tests' own. All tests here are marked `hosts` and left out unless asked for: `make test-hosts`."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority import has_openssl
from tests.hosts.hosted import HostedYard
from tests.hosts.network import why_not

HERE = Path(__file__).parent

for chatty in ("httpx", "httpx2"):  # figures are logged, and a line a request would bury them
    logging.getLogger(chatty).setLevel(logging.WARNING)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, and allow for silence that lasts."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.hosts)
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedYard]:
    """All machines, with every part started; each test leaves them as it found them."""
    installed = os.environ.get("GPUYARD_TEST_HOSTS")
    if installed is None:
        pytest.skip("the wheel is not installed: make test-hosts")
    if reason := why_not():
        pytest.skip(reason)
    if not has_openssl():
        pytest.skip("there is no openssl to make certificates with")
    with HostedYard(tmp_path_factory.mktemp("yard"), Path(installed)) as yard:
        yield yard
