"""Start `runtime_server.py` as a real process and stop it by its pid.

Other tests use the fixture: `from tests.fakes.runtime_process import runtime_server`.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("runtime_server.py")
REPLICA_SCRIPT = Path(__file__).with_name("replica_server.py")
Spawn = Callable[[list[str]], subprocess.Popen[bytes]]


@dataclass
class RuntimeProcess:
    """A running mock. `url` has no `/v1`."""

    process: subprocess.Popen[bytes]
    url: str

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/stats", timeout=10) as answer:  # noqa: S310 - our own URL
            return dict(json.load(answer))

    def marks(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.url}/marks", timeout=10) as answer:  # noqa: S310 - our own URL
            return dict(json.load(answer))

    def reset(self) -> None:
        self.post("/reset")

    def post(self, path: str, content: str = "") -> None:
        data = content.encode()
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10, data=data) as answer:  # noqa: S310 - our own URL
            answer.read()

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], *, seconds: float = 10) -> dict[str, Any]:
        """Return the first stats for which the condition holds."""
        end = time.monotonic() + seconds
        while not condition(stats := self.stats()):
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {stats}")
            time.sleep(0.02)
        return stats

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=10)


@dataclass
class Starting:
    """A mock that was started a moment ago."""

    process: subprocess.Popen[bytes]
    ready: Path

    def listening(self) -> RuntimeProcess:
        """Wait until it listens."""
        end = time.monotonic() + 20
        while not self.ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"the mock runtime did not start: {self.process.args!r}")
            time.sleep(0.01)
        return RuntimeProcess(self.process, self.ready.read_text())


def quietly(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def start_runtime(folder: Path, *options: object, spawn: Spawn = quietly) -> RuntimeProcess:
    """Start a mock as `launch` does and wait until it listens."""
    return launch(folder, *options, spawn=spawn).listening()


def launch(folder: Path, *options: object, spawn: Spawn = quietly) -> Starting:
    """Start a mock with command-line options such as `"--latency-ms", 50`.

    With `"--like", "llama-server"` it is a replica of that server.
    """
    ready = folder / f"runtime-{time.monotonic_ns()}.url"
    script = REPLICA_SCRIPT if "--like" in options else SCRIPT
    command = [sys.executable, str(script), "--ready-file", str(ready), *map(str, options)]
    return Starting(spawn(command), ready)


@pytest.fixture
def runtime_server(tmp_path: Path) -> Iterator[Callable[..., RuntimeProcess]]:
    """Start mocks by calling it with their options; they end with the test."""
    started: list[RuntimeProcess] = []

    def start(*options: object) -> RuntimeProcess:
        started.append(start_runtime(tmp_path, *options))
        return started[-1]

    yield start
    for runtime in started:
        runtime.kill()
