"""Real vLLM servers for this room: one that most tests share, and others with options of their own.

All tests here are marked `vllm` and are left out unless asked for: `make test-vllm`.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executors.runtimes.vllm import VLLMExecutor
from tests.vllm.engine import GENERATE, VllmServer, executor_for, home, make_model

HERE = Path(__file__).parent

for chatty in ("httpx", "httpx2"):  # figures are logged, and a line a request would bury them
    logging.getLogger(chatty).setLevel(logging.WARNING)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, and allow for an engine that loads first."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def vllm_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The environment with vLLM, and the tiny model."""
    venv = home()
    if venv is None:
        pytest.skip("vLLM is not installed: make test-vllm")
    return venv, make_model(venv, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def start_vllm(
    vllm_model: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., VllmServer]]:
    """Start a server by calling it with more options; `close` it early, each takes 2 GB."""
    started: list[VllmServer] = []

    def start(*options: str, kind: tuple[str, ...] = GENERATE) -> VllmServer:
        server = VllmServer(*vllm_model, tmp_path_factory.mktemp("vllm"), (*kind, *options))
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def server(start_vllm: Callable[..., VllmServer]) -> VllmServer:
    """The server of all tests that leave it as it was."""
    return start_vllm()


@pytest.fixture
def executor(server: VllmServer) -> Iterator[VLLMExecutor]:
    """Our executor in front of the shared server."""
    yield from executor_for(server)
