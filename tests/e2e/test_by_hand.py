"""The same parts started one by one, each by its own command with settings in the environment, on PostgreSQL."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from app.local.broker import local_broker
from app.local.guard import Guard
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import CELERY, TIMING, Process, until
from tests.fakes.runtime_process import start_runtime
from tests.installation import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(240)]

GPUYARD = (sys.executable, "-m", "app.cli.main")


class Hand:
    """Types commands, with one environment for all."""

    def __init__(self, folder: Path, database_url: str, guard: Guard) -> None:
        self.folder = folder
        self._guard = guard
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "GPUYARD_DATABASE_URL": database_url,
            "GPUYARD_DATA_DIR": str(folder / "data"),
            "GPUYARD_PORT": str(port),
            "GPUYARD_SERVER_URL": self.url,
        }
        self.environment = Installation(folder, TIMING | settings).environment()
        self.processes: list[Process] = []

    def start(self, name: str, *argv: str, **more: str) -> Process:
        log = self.folder / f"{name}.log"
        process = Process(name, argv, env=self.environment | more, log=log, guard=self._guard)
        self.processes.append(process)
        return process

    def run(self, *argv: str) -> str:
        """Run a command to its end, and give what it printed."""
        done = subprocess.run(argv, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def hand(tmp_path: Path, own_postgres: str) -> Iterator[Hand]:
    guard = Guard()
    hand = Hand(tmp_path, own_postgres, guard)
    yield hand
    for process in reversed(hand.processes):
        if process.alive:
            process.kill()
    guard.close()


def start_broker(hand: Hand) -> None:
    broker = local_broker(hand.folder / "redis")
    broker.folder.mkdir(parents=True)
    hand.start("broker", *broker.argv)
    until(broker.answers, "the broker answers")
    hand.environment["GPUYARD_BROKER_URL"] = broker.url


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def test_every_part_by_its_own_command(hand: Hand) -> None:
    start_broker(hand)
    runtime = start_runtime(hand.folder)
    assert "the schema is at revision" in hand.run(*GPUYARD, "migrate")
    api = hand.start("api", *GPUYARD, "serve", "--init")
    control = hand.start("control", *CELERY, "app.celery_control", "worker", "-Q", "control")
    beat = hand.start("beat", *CELERY, "app", "beat")
    api.until_it_says("the first admin key, shown once: gk-")
    found = re.search(r"shown once: (gk-\S+)", api.log.read_text())
    assert found
    admin = found[1]
    until(lambda: answers(hand.url), "the API answers")
    hand.environment["GPUYARD_API_KEY"] = admin
    made = json.loads(hand.run(*GPUYARD, "token", "create", "machines", "--scope", "worker", "--json"))
    worker = hand.start(
        "worker",
        *(*CELERY, "app", "worker", "-Q", "gpu"),
        GPUYARD_API_KEY=made["secret"],
        GPUYARD_RUNTIME="vllm",
        GPUYARD_RUNTIME_URL=runtime.url,
        GPUYARD_STATE_DIR=str(hand.folder / "state"),
        GPUYARD_WORKER_NAME="hand",
    )
    try:
        with (
            closing(OpenAI(base_url=f"{hand.url}/v1", api_key=admin)) as sdk,
            httpx.Client(base_url=hand.url, headers={"authorization": f"Bearer {admin}"}) as http,
        ):
            uploaded = sdk.files.create(file=("input.jsonl", marked("hand", 300)), purpose="batch")
            batch = sdk.batches.create(
                input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            submitted = Submitted(sdk, http, batch.id)
            submitted.ended()
            assert_each_row_once(submitted, "hand", 300)
            swept = http.get("/readyz").json()["sweep_age_seconds"]
            assert set(swept) >= {"heartbeat-sweeper", "lease-expiry", "requeue", "batch-expiry"}
    finally:
        runtime.kill()
    assert worker.stop() == 0  # it says goodbye to the API
    for process in (control, beat, api):
        process.send(signal.SIGTERM)
    for process in (control, beat, api):
        until(lambda: not process.alive, f"{process.name} ends")  # noqa: B023 - now
        assert process.exit_code == 0
