"""What a whole installation on one machine consists of, as commands: the same ones a user types (DESIGN 2)."""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import app
from app.local.children import Part
from config.proxies import directly_to

ROOT = Path(app.__file__).parents[1]
_CELERY = (sys.executable, "-m", "app.local.celery_command", "-A")
_FLOWERS_CELERY = (sys.executable, "-m", "celery", "-A")
SCHEMA_SECONDS = 60.0
"""How long the API may take to bring the schema up before the control worker gives up, and is started again."""
# What `gpuyard serve` turns into, without a second start of the interpreter.
_API = (sys.executable, "-m", "app.api")


@dataclass(frozen=True)
class Plan:
    """One installation. `given` are the settings of the command line, handed on as `GPUYARD_…`."""

    data_dir: Path
    url: str
    broker_url: str
    pool: str
    given: Mapping[str, str]
    workers: int = 1
    worker_name: str | None = None
    drain_seconds: float = 60
    kill_after_seconds: float = 10
    flower_port: int | None = None

    def environment(self, **ours: str) -> dict[str, str]:
        """A child's environment: the caller's, the command line's settings, what was found here, and `ours`.

        A child runs in the data folder, where no other `app` package can hide ours.
        """
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        found = {
            "GPUYARD_DATA_DIR": str(self.data_dir),
            "GPUYARD_BROKER_URL": self.broker_url,
            "GPUYARD_POOL": self.pool,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
        }
        return {**os.environ, **self.given, **found, **ours}

    def api(self, *, admin_key: str, locks: tuple[int, ...]) -> Part:
        """The API, which brings the schema up and makes `admin_key` the first token."""
        environment = self.environment(GPUYARD_BOOTSTRAP_TOKEN=admin_key)
        return Part("api", (*_API, "serve", "--migrate"), environment, inherit=locks)

    def control(self, *, locks: tuple[int, ...]) -> Part:
        """The control worker, which waits for the schema: it is started together with the API."""
        argv = (*_CELERY, "app.celery_control", "worker", "-Q", "control", "-n", "control@%h")
        environment = self.environment(GPUYARD_SCHEMA_WAIT_SECONDS=f"{SCHEMA_SECONDS:g}")
        return Part("control", argv, environment, inherit=locks)

    def beat(self, *, locks: tuple[int, ...]) -> Part:
        """Beat."""
        return Part("beat", (*_CELERY, "app", "beat"), self.environment(), inherit=locks)

    def worker(self, number: int, *, key: str, locks: tuple[int, ...]) -> Part:
        """The GPU worker `number`, counted from 1. It gets as long to end as its own drain may take."""
        environment = self.environment(
            **directly_to(self.url, os.environ),
            GPUYARD_SERVER_URL=self.url,
            GPUYARD_API_KEY=key,
            GPUYARD_WORKER_NAME=self.name_of(number),
            GPUYARD_STATE_DIR=str(self.data_dir / "workers" / str(number)),
        )
        return Part(
            f"worker-{number}",
            (*_CELERY, "app", "worker", "-Q", self.pool),
            environment,
            stop_seconds=self.drain_seconds + self.kill_after_seconds + 10,
            inherit=locks,
        )

    def name_of(self, number: int) -> str:
        """The name of the GPU worker `number`: the one given when it is the only one, else numbered."""
        if self.worker_name and self.workers == 1:
            return self.worker_name
        return f"{self.worker_name or platform.node() or 'worker'}-{number}"

    def flower(self, *, locks: tuple[int, ...]) -> Part:
        """Flower: on loopback, read-only, without a log-in; it shows ids and nothing else."""
        argv = (*_FLOWERS_CELERY, "app", "flower", "--address=127.0.0.1", f"--port={self.flower_port}", "--read_only")
        return Part("flower", argv, self.environment(FLOWER_UNAUTHENTICATED_API="true"), inherit=locks)
