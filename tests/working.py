"""Agents and the real API in one process: fixtures, and what a user and the control side do meanwhile."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types import Batch
from pydantic import SecretStr

from app.worker.agent import Agent
from config.settings import WorkerSettings
from executors.base import BaseExecutor
from tests.databases import Databases
from tests.fakes.steered_executor import SteeredExecutor
from tests.hands import do_control_work
from tests.migrated import migrate
from tests.served import Served, rows, serving

LADDER = {"renew_seconds": 1.0, "grace_seconds": 5.0, "toleration_seconds": 20.0, "kill_after_seconds": 0.5}
StartWorker = Callable[..., Agent]


@pytest.fixture
def served(sqlite_databases: Databases, tmp_path: Path) -> Iterator[Served]:
    with serving(
        sqlite_databases.copy_of(migrate),
        tmp_path / "data",
        segment_seconds=0.1,
        shard_rows=8,
        sweep_seconds=1.0,
        **LADDER,
    ) as running:
        yield running


@pytest.fixture
def start_worker(served: Served, tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers by name, each with runtimes of its own; all leave at the end."""
    started: list[tuple[Agent, tuple[BaseExecutor, ...]]] = []
    key = SecretStr(served.key("worker"))

    def start(name: str, *runtimes: BaseExecutor, **settings: Any) -> Agent:
        chosen = {
            "server_url": served.url,
            "api_key": key,
            "worker_name": name,
            "state_dir": tmp_path / name,
            "max_concurrent_prompts": 4,
        }
        agent = Agent(WorkerSettings(**(chosen | LADDER | settings)), runtimes)
        started.append((agent, runtimes))
        agent.start()
        return agent

    yield start
    for agent, runtimes in started:
        for runtime in runtimes:
            if isinstance(runtime, SteeredExecutor):
                runtime.let_all()
        agent.on_signal()
        assert agent.join(20)


@pytest.fixture
def sdk(served: Served) -> Iterator[OpenAI]:
    with served.client(served.key("submit")) as found:
        yield found


def submit(sdk: OpenAI, served: Served, count: int, *models: str) -> Batch:
    """Send a batch of `count` rows that take turns with the models, and have it validated."""
    return submit_content(sdk, served, rows(count, *(models or ("fake",))))


def submit_content(sdk: OpenAI, served: Served, content: bytes, **ours: Any) -> Batch:
    """Send a batch of these rows, with gpuyard's own arguments, and have it validated."""
    file = sdk.files.create(file=("in.jsonl", content), purpose="batch")
    batch = sdk.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", extra_body=ours
    )
    do_control_work(served)
    return batch


def ended(sdk: OpenAI, served: Served, batch_id: str) -> Batch:
    """Do the control side's work until the batch has ended."""
    deadline = time.monotonic() + 20
    while True:
        do_control_work(served)
        batch = sdk.batches.retrieve(batch_id)
        if batch.status in {"completed", "failed", "expired", "cancelled"}:
            return batch
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)


def content(sdk: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sdk.files.content(file_id).content.splitlines()] if file_id else []
