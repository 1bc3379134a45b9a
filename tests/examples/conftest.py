"""One whole installation for all examples, with a runtime that answers without a model."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60
MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Installation:
    """Where it is reached, and how an example is run against it."""

    url: str
    api_key: str
    path: str

    @property
    def environment(self) -> dict[str, str]:
        """What a user exports before the examples."""
        return {
            "PATH": self.path,
            "PYTHONPATH": str(ROOT),
            "GPUYARD_SERVER_URL": self.url,
            "GPUYARD_API_KEY": self.api_key,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": self.api_key,
        }

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run an example to its end."""
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=90, check=False
        )


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which `gpuyard` is this tree's, installed or not."""
    folder = tmp_path_factory.mktemp("commands")
    script = folder / "gpuyard"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app.cli.main "$@"\n')
    script.chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, commands: str) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("up")
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "app.cli.main", "up", "--data", folder / "data", "--port", "0"]
    command += ["--runtime", "fake", "--runtime-url", f"fake:?models={MODEL}", "--ready-file", ready]
    log = folder / "up.log"
    with log.open("wb") as output:
        # A company's proxy knows no way to this machine's loopback, and is not asked for one.
        ours = {"PYTHONPATH": str(ROOT), "HTTP_PROXY": "http://127.0.0.1:1"}
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | ours, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        said = json.loads(ready.read_text())
        yield Installation(said["url"], said["api_key"], commands)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
