"""The API as its own process, on a free port, with what it logged."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.served import ADMIN_KEY

ROOT = Path(__file__).parents[1]
SECONDS = 90.0
_RUNNING = re.compile(r"running on (https?://127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class ApiProcess:
    """A running `gpuyard serve`; ADMIN_KEY opens it."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.partition("://")[2].partition(":")
        return host, int(port)


@contextmanager
def api_process(database_url: str, folder: Path, **settings: str) -> Iterator[ApiProcess]:
    """Serve a database whose schema is there until the end of the block; it then ends with code 0.

    `settings` are variables of its environment.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")} | {
        "GPUYARD_DATABASE_URL": database_url,
        "GPUYARD_DATA_DIR": str(folder / "data"),
        "GPUYARD_BOOTSTRAP_TOKEN": ADMIN_KEY,
        "PYTHONPATH": str(ROOT),
        **settings,
    }
    log = folder / "api.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli.main", "serve", "--port", "0"],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield ApiProcess(_url(process, log), log, process)
        assert process.poll() is None, f"the API ended by itself: {log.read_text()[-2000:]}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait(SECONDS)


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while (found := _RUNNING.search(log.read_text(errors="replace"))) is None:
        assert process.poll() is None, f"the API ended at its start: {log.read_text()}"
        assert time.monotonic() < deadline, "the API did not start in time"
        time.sleep(0.02)
    return found[1]
