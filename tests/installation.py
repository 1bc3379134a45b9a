"""`gpuyard …` as a user runs it: a process, in surroundings of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import psutil

ROOT = Path(__file__).parents[1]
START_SECONDS = 100


class Installation:
    """A data folder, and the `gpuyard up` that runs on it now. `settings` are `GPUYARD_…` of its environment."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        self.data = folder / "data"
        self.ready_file = folder / "ready.json"
        self.home = folder / "home"
        self.output = folder / "up.log"
        self.process: subprocess.Popen[bytes] | None = None

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")}
        # A process that may not keep what it compiled compiles everything at each start.
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)
        ours = {"PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(self.home), "HOME": str(self.home)}
        return {**inherited, **ours, **self.settings}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "app.cli.main", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment(), capture_output=True, text=True, timeout=60, check=False
        )

    def up_command(self, *options: str) -> list[str]:
        where = ("--data", str(self.data), "--ready-file", str(self.ready_file))
        return self.command("up", *where, "--port", "0", "--runtime", "fake", *options)

    def up(self, *options: str) -> dict[str, Any]:
        """Start, and wait for the ready file."""
        with self.output.open("ab") as output:
            self.process = self.spawn(self.up_command(*options), output)
        end = time.monotonic() + START_SECONDS
        while not self.ready_file.exists():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < end, self.output.read_text()
            time.sleep(0.05)
        return self.ready()

    def spawn(self, argv: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process of this installation."""
        return subprocess.Popen(argv, env=self.environment(), stdout=output, stderr=output)

    def ready(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ready_file.read_text())
        return found

    def everyone(self) -> list[psutil.Process]:
        """`up` and all below it."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def stop(self, number: int = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)
