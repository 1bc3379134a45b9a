from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from app.domain.workers import Transport
from app.worker.agent import Agent
from config.settings import WorkerSettings
from executors.base import BaseExecutor
from tests.fakes.control_plane import FakeControlPlane
from tests.fakes.steered_executor import SteeredExecutor

StartAgent = Callable[..., Agent]


@pytest.fixture(autouse=True)
def _plain_log() -> Iterator[None]:
    """Print plainly: structlog's own traces with all locals take seconds each."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])
    yield
    structlog.reset_defaults()


@pytest.fixture
def plane() -> Iterator[FakeControlPlane]:
    with FakeControlPlane() as found:
        yield found


@pytest.fixture
def runtime() -> Iterator[SteeredExecutor]:
    found = SteeredExecutor()
    yield found
    found.let_all()


@pytest.fixture
def start_agent(plane: FakeControlPlane, runtime: SteeredExecutor, tmp_path: Path) -> Iterator[StartAgent]:
    """Start agents against the fake control plane; all are drained at the end, whatever the test did."""
    agents: list[Agent] = []

    def start(
        executors: list[BaseExecutor] | None = None,
        clock: Callable[[], float] | None = None,
        transport: Transport = Transport.CELERY,
        **settings: Any,
    ) -> Agent:
        chosen = {
            "server_url": plane.url,
            "api_key": SecretStr("gk-test"),
            "worker_name": "gpu-1",
            "state_dir": tmp_path / "state",
            "max_concurrent_prompts": 4,
            "drain_seconds": 5.0,
            "retry_min_seconds": 0.01,
            "retry_max_seconds": 0.02,
        }
        more = {} if clock is None else {"clock": clock}
        agent = Agent(WorkerSettings(**(chosen | settings)), executors or [runtime], transport=transport, **more)
        agents.append(agent)
        agent.start()
        return agent

    yield start
    runtime.let_all()
    for agent in agents:
        if not agent.join(0):
            agent.on_signal()
            agent.on_signal()
            assert agent.join(30)
