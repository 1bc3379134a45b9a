"""pytest-celery's nodes over local processes instead of containers: its setup and node API drive them unchanged."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.local.broker import LocalBroker

READY_SECONDS = 60


class ProcessContainer:
    """What pytest-celery's nodes ask of a container, answered by one process."""

    def __init__(
        self, name: str, argv: Sequence[str], *, folder: Path, ready: Callable[["ProcessContainer"], bool]
    ) -> None:
        self.name = self.id = name
        self.celeryconfig: dict[str, Any] = {}
        self._argv, self._folder, self._ready = argv, folder, ready
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> str:
        return "running" if self._process and self._process.poll() is None else "exited"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdout=log, stderr=log, cwd=self._folder, env=self._environment()
            )
        self.ready()

    def ready(self) -> bool:
        end = time.monotonic() + READY_SECONDS
        while not self._ready(self):
            assert self.status == "running", self.logs()
            assert time.monotonic() < end, self.logs()
            time.sleep(0.02)
        return True

    def logs(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self, signal: str | int = "SIGKILL") -> None:
        assert self._process is not None
        self._process.send_signal(_number(signal))
        if _number(signal) in (9, 15):
            self._process.wait(timeout=READY_SECONDS)

    def restart(self, timeout: int = 10) -> None:  # noqa: ARG002 - pytest-celery passes it
        if self.status == "running":
            self.kill("SIGTERM")
        self._log.unlink()
        self.start()

    def reload(self) -> None:
        """Nothing is cached."""

    def teardown(self) -> None:
        if self.status == "running":
            assert self._process is not None
            self._process.send_signal(signal.SIGCONT)
            self.kill("SIGKILL")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])} | self.celeryconfig.get("env", {})


class BrokerContainer(ProcessContainer):
    """The embedded broker."""

    def __init__(self, broker: LocalBroker) -> None:
        broker.folder.mkdir(parents=True, exist_ok=True)
        super().__init__("broker", broker.argv, folder=broker.folder.parent, ready=lambda _: broker.answers())
        self.celeryconfig = {"url": broker.url, "host_url": broker.url, "vhost": "0"}


class WorkerContainer(ProcessContainer):
    """A Celery worker on `queues`, started by the plain command with the product's configuration."""

    def __init__(self, name: str, *, broker_url: str, folder: Path, queues: str | None = "gpu", slots: int = 1) -> None:
        argv = [sys.executable, "-m", "celery", "-A", "tests.fakes.celery_app", "worker", "-n", f"{name}@local"]
        super().__init__(
            name,
            [*argv, *(("-Q", queues) if queues else ())],
            folder=folder,
            ready=lambda container: f"{name}@local ready." in container.logs(),
        )
        self._queues = queues
        self.celeryconfig = {"env": {"GPUYARD_BROKER_URL": broker_url, "GPUYARD_SLOTS_BATCHES": str(slots)}}

    def version(self) -> str:
        return "local"

    def log_level(self) -> str:
        return "INFO"

    def worker_name(self) -> str:
        return self.name

    def worker_queue(self) -> str:
        return self._queues or ""


def _number(name: str | int) -> int:
    return name if isinstance(name, int) else signal.Signals[name].value
