"""Tests of this room need the `promtool` of Prometheus (`make test-alerts`), and are left out unless asked for."""

from pathlib import Path

import pytest

from tests.alerts import promtool

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.alerts)


@pytest.fixture(scope="session")
def tool() -> str:
    """Where promtool is."""
    found = promtool.tool()
    if found is None:
        pytest.skip("there is no promtool: make test-alerts")
    return found
