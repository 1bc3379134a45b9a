"""All tests here are marked `tenants` and left out unless asked for: `make test-tenants`."""

import logging
from pathlib import Path

import pytest

HERE = Path(__file__).parent

for chatty in ("httpx", "httpx2"):  # figures are logged, and a line a request would bury them
    logging.getLogger(chatty).setLevel(logging.WARNING)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.tenants)
