"""A real yard and a real browser for the tests of `test_in_browser.py`, which are marked `page`: `make test-page`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.yard import Yard

TIMING = {"GPUYARD_SEGMENT_SECONDS": "0.5", "GPUYARD_DRAIN_SECONDS": "1", "GPUYARD_KILL_AFTER_SECONDS": "0.5"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """`gpuyard up` with one worker on a mock engine."""
    with Yard(tmp_path_factory.mktemp("yard"), timing=TIMING) as running:
        running.start()
        running.http.post("/v1/pools", json={"name": "lab"}).raise_for_status()
        running.worker("gpu-box-1")
        running.until_present("gpu-box-1")
        yield running


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the browser saves files."""
    return tmp_path_factory.mktemp("downloads")
