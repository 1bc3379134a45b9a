"""The mock engine as a process (benchmarks/engine/*.c), and what it says about its clients."""

import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.places import ENGINE

START_SECONDS = 20


@dataclass(frozen=True)
class Shape:
    """An engine: `slots` rows at once, each for `latency_ms`; `more` are further options of its command line."""

    slots: int
    latency_ms: float
    more: tuple[str, ...] = ()

    @property
    def limit(self) -> float:
        """Rows a second that no client can exceed."""
        return self.slots * 1000 / self.latency_ms

    @property
    def options(self) -> list[str]:
        return ["--slots", str(self.slots), "--latency-ms", f"{self.latency_ms:g}", *self.more]

    def __str__(self) -> str:
        """Say it as the targets do."""
        return f"{self.slots} x {self.latency_ms:g} ms"


@dataclass(frozen=True)
class Engine:
    """A running one. `url` has no `/v1`."""

    url: str
    process: subprocess.Popen[bytes]
    shape: Shape

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stats(self) -> dict[str, Any]:
        return self._ask("/stats")

    def timeline(self) -> list[list[int]]:
        """Per window of 250 ms since the first row: rows completed, most in work, most waiting."""
        windows: list[list[int]] = self._ask("/timeline")["windows"]
        return windows

    def reset(self) -> None:
        self._ask("/reset", post=True)

    def change(self, **settings: float) -> None:
        """Change `slots`, `latency_ms` or `queue` while it works."""
        self._ask("/change?" + "&".join(f"{name}={value:g}" for name, value in settings.items()), post=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def _ask(self, path: str, *, post: bool = False) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, data=b"" if post else None, timeout=10) as answer:  # noqa: S310 - our own URL
            return dict(json.load(answer))


def start_engine(shape: Shape) -> Engine:
    """Start one on a free port and wait until it listens."""
    folder = Path(tempfile.mkdtemp(prefix="mock-engine-"))
    ready = folder / "url"
    command = [str(ENGINE), "--ready-file", str(ready), *shape.options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"the mock engine did not start: {command}")
        time.sleep(0.005)
    url = ready.read_text()
    ready.unlink()
    folder.rmdir()
    return Engine(url, process, shape)


@contextmanager
def engine(shape: Shape) -> Iterator[Engine]:
    """One that ends with the block."""
    running = start_engine(shape)
    try:
        yield running
    finally:
        running.kill()
