"""Start `ollama_server.py` as a real process and stop it by its pid.

Tests use the fixture: `from tests.fakes.ollama_process import ollama_server`.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.runtime_process import RuntimeProcess

ROOT = Path(__file__).parents[2]


def start_ollama(folder: Path, *options: object) -> RuntimeProcess:
    """Start a fake with command-line options such as `"--load-ms", 50` and wait until it listens."""
    ready = folder / f"ollama-{time.monotonic_ns()}.url"
    command = [sys.executable, "-m", "tests.fakes.ollama_server", "--ready-file", str(ready), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    end = time.monotonic() + 20
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise AssertionError(f"the fake Ollama did not start: {command}")
        time.sleep(0.01)
    return RuntimeProcess(process, ready.read_text())


@pytest.fixture
def ollama_server(tmp_path: Path) -> Iterator[Callable[..., RuntimeProcess]]:
    """Start fakes by calling it with their options; they end with the test."""
    started: list[RuntimeProcess] = []

    def start(*options: object) -> RuntimeProcess:
        started.append(start_ollama(tmp_path, *options))
        return started[-1]

    yield start
    for runtime in started:
        runtime.kill()
