"""`gpuyard …` as a script runs it: what it prints where, and how it ends."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 90


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Commands:
    """Runs commands in `home`, with nothing of the caller's settings and with `settings`."""

    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", "app.cli.main"]

    def environment(self, **more: str) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_") and name != "COLUMNS"
        }
        ours = {"PYTHONPATH": str(ROOT), "HOME": str(self.home), "XDG_DATA_HOME": str(self.home)}
        return {**inherited, **ours, "GPUYARD_DATA_DIR": str(self.home / "data"), **self.settings, **more}

    def run(self, *arguments: str | Path, stdin: bytes = b"", **environment: str) -> Done:
        return self._run([*self.argv, *map(str, arguments)], stdin, environment)

    def shell(self, script: str) -> Done:
        return self._run(["/bin/sh", "-c", script], b"", {})

    def _run(self, command: list[str], stdin: bytes, environment: Mapping[str, str]) -> Done:
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment(**environment),
            input=stdin,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.argv, *map(str, arguments)],
            cwd=self.home,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def rows(count: int, *, model: str = "quick") -> bytes:
    """An input file."""
    return b"".join(
        json.dumps(
            {
                "custom_id": f"row-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"model": model, "messages": [{"role": "user", "content": f"[[{number}]]"}]},
            }
        ).encode()
        + b"\n"
        for number in range(count)
    )


def ids(lines: bytes | str | Sequence[str]) -> list[str]:
    """The custom_ids of result lines."""
    found = lines.splitlines() if isinstance(lines, bytes | str) else lines
    return [json.loads(line)["custom_id"] for line in found]
