"""A yard on machines of its own: a database, a broker, a control plane, three GPU machines; installed from the wheel.

What runs is what the units of docs/operate/systemd start, with their environment and nothing of ours.
"""

import json
import logging
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx
from openai import OpenAI

from app.local.broker import find_server
from app.local.guard import Guard
from tests.authority import make_authority
from tests.cluster import Cluster
from tests.e2e.submitted import Submitted
from tests.e2e.yard import Process, until
from tests.fakes.runtime_process import RuntimeProcess, launch
from tests.hosts.network import Network
from tests.units import Unit

GPUS = ("gpu1", "gpu2", "gpu3")
MACHINES = ("desk", "broker", "database", "yard", *GPUS)
"""`desk` is where the tests sit."""
TIMING = {
    "GPUYARD_RENEW_SECONDS": "2",
    "GPUYARD_GRACE_SECONDS": "5",
    "GPUYARD_TOLERATION_SECONDS": "30",
    "GPUYARD_KILL_AFTER_SECONDS": "1",
    "GPUYARD_DRAIN_SECONDS": "2",
    "GPUYARD_SWEEP_SECONDS": "1",
    "GPUYARD_SEGMENT_SECONDS": "0.5",
}
"""The ladder, a tenth as long; between self-stop (26 s) and the end of a lease lies what a busy machine may need."""
TOLERATION_SECONDS = 30.0
PROMPTS = "8"
ADMIN = "gk-the-key-of-the-first-admin"
PASSWORD = "the-password-of-the-broker"  # noqa: S105 - a test's
AS_SYSTEMD = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
log = logging.getLogger("hosts")


@dataclass
class Gpu:
    """A GPU machine: its worker, and the engine beside it, which nobody else reaches."""

    name: str
    worker: Process
    engine: RuntimeProcess
    _entered: Callable[[], Any] = field(repr=False)

    def rows_run(self) -> int:
        """How many rows its engine was asked for."""
        with self._entered():
            return int(self.engine.stats()["requests"])

    def moments(self, text: str, *, since: float) -> list[float]:
        """When its worker's log said `text`, from `since` on."""
        lines = re.findall(rf"^(\S+Z) \[\w+ *\] {re.escape(text)}", self.worker.log.read_text(), re.MULTILINE)
        times = [datetime.fromisoformat(line).timestamp() for line in lines]
        return [at for at in times if at >= since]

    def said(self, text: str, *, since: float, seconds: float = 60) -> float:
        """Wait until its log says `text`; give when it did."""
        return until(lambda: self.moments(text, since=since), f"{self.name} says {text}", seconds=seconds)[0]


class HostedYard:
    """Use it as a context: all of it runs inside, and nothing after. `installed` holds `control` and `worker`."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder = folder
        self._installed = installed
        self._guard = Guard()
        self._processes: list[Process] = []
        self.gpus: dict[str, Gpu] = {}

    def __enter__(self) -> Self:
        """Start everything, and be at the desk."""
        with ExitStack() as closing:
            closing.callback(self._guard.close)
            self.network = Network(self._guard, self.folder / "machines.log", MACHINES)
            closing.callback(self.network.close)
            with self.network["database"].entered():
                cluster = Cluster(address=self.network["database"].address)
            closing.callback(cluster.stop)
            self.database_url = cluster.url(cluster.create())
            closing.enter_context(self.network["desk"].entered())
            closing.callback(self._end_processes)
            self._start_all(closing)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it."""
        self._closing.close()

    def _start_all(self, closing: ExitStack) -> None:
        self.authority = make_authority(self.folder / "authority", self.network["yard"].address)
        self.url = f"https://{self.network['yard'].address}:8765"
        self._start_broker()
        for part in ("api", "control", "beat"):
            self._start(part, "yard", "control", self._control_env())
        trusted = ssl.create_default_context(cafile=self.authority.ca)
        key = {"authorization": f"Bearer {ADMIN}"}
        self.http = closing.enter_context(httpx.Client(base_url=self.url, headers=key, timeout=30, verify=trusted))
        by_tls = closing.enter_context(httpx.Client(timeout=30, verify=trusted))
        self.sdk = OpenAI(base_url=f"{self.url}/v1", api_key=ADMIN, max_retries=5, http_client=by_tls)
        until(self._is_ready, "the API is ready", seconds=120)
        for name in GPUS:
            self._start_gpu(name)
        for gpu in self.gpus.values():
            gpu.worker.until_it_says(f"{gpu.name}@{gpu.name} ready.", seconds=120)

    def _end_processes(self) -> None:
        for process in reversed(self._processes):
            if process.alive:
                process.kill()
        for gpu in self.gpus.values():
            gpu.engine.kill()

    # --- machines

    def _start_broker(self) -> None:
        argv = [str(find_server()), "--bind", self.network["broker"].address, "--requirepass", PASSWORD, "--save", ""]
        self._spawn("broker", "broker", argv, {})

    def _control_env(self) -> dict[str, str]:
        """What stands in /etc/gpuyard/control.env."""
        return TIMING | {
            "GPUYARD_DATABASE_URL": self.database_url,
            "GPUYARD_BROKER_URL": self._broker_url(),
            "GPUYARD_HOST": "0.0.0.0",  # noqa: S104 - of a machine that only these tests reach
            "GPUYARD_TLS_CERT": str(self.authority.certificate),
            "GPUYARD_TLS_KEY": str(self.authority.key),
            "GPUYARD_BOOTSTRAP_TOKEN": ADMIN,
            "GPUYARD_SHARD_ROWS": "64",
        }

    def _start_gpu(self, name: str) -> None:
        host = self.network[name]
        starting = launch(self.folder, "--slots", 100, spawn=lambda argv: self._engine(host.argv(argv)))
        engine = starting.listening()
        key = self.http.post("/v1/tokens", json={"name": name, "scopes": ["worker"], "single_worker": True})
        key.raise_for_status()
        given = TIMING | {
            "GPUYARD_SERVER_URL": self.url,
            "GPUYARD_API_KEY": key.json()["secret"],
            "GPUYARD_BROKER_URL": self._broker_url(),
            "SSL_CERT_FILE": str(self.authority.ca),
            "GPUYARD_RUNTIME": "vllm",
            "GPUYARD_RUNTIME_URL": engine.url,
            "GPUYARD_MAX_CONCURRENT_PROMPTS": PROMPTS,
        }
        self.gpus[name] = Gpu(name, self._start("worker", name, "worker", given), engine, host.entered)

    def _broker_url(self) -> str:
        return f"redis://:{PASSWORD}@{self.network['broker'].address}:6379/0"

    def _start(self, part: str, machine: str, environment: str, given: Mapping[str, str]) -> Process:
        """Do as systemd does with the unit of `part`."""
        unit = Unit.of(part)
        state = self.folder / machine / "state"
        (state / "gpuyard").mkdir(parents=True, exist_ok=True)
        told = unit.environment(given, state)
        return self._spawn(part, machine, unit.argv(told, self._installed / environment), told)

    def _spawn(self, part: str, machine: str, argv: list[str], told: Mapping[str, str]) -> Process:
        folder = self.folder / machine
        folder.mkdir(exist_ok=True)
        argv = self.network[machine].argv(argv)
        process = Process(part, argv, env=AS_SYSTEMD | told, log=folder / f"{part}.log", guard=self._guard)
        self._processes.append(process)
        return process

    def _engine(self, argv: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "engines.log").open("ab") as output:
            return self._guard.spawn(argv, env=AS_SYSTEMD, log=output, cwd=self.folder)

    def _is_ready(self) -> bool:
        assert all(process.alive for process in self._processes), self.folder
        try:
            return self.http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    # --- work

    def submit(self, lines: bytes) -> Submitted:
        uploaded = self.sdk.files.create(file=("input.jsonl", lines), purpose="batch")
        batch = self.sdk.batches.create(
            input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        return Submitted(self.sdk, self.http, batch.id)

    def rows_run(self) -> int:
        """How many rows all engines were asked for."""
        return sum(gpu.rows_run() for gpu in self.gpus.values())

    def events(self, subject: str) -> list[dict[str, Any]]:
        """The events of a batch or a worker, oldest first; `at` is in seconds of the machine's clock."""
        found = self.http.get("/v1/events", params={"subject": subject, "limit": 1000})
        found.raise_for_status()
        return list(found.json()["data"])

    def events_of(self, gpu: str) -> list[dict[str, Any]]:
        """What was noted of a worker."""
        return self.events(self.http.get(f"/v1/workers/{gpu}").json()["id"])

    def noted(self, gpu: str, kind: str, *, after: float, seconds: float = 60) -> float:
        """Wait until something is noted of a worker after the time `after`; give when it happened."""

        def times() -> list[float]:
            return [each["at"] for each in self.events_of(gpu) if each["type"] == kind and each["at"] > after]

        return float(until(times, f"{kind} of {gpu}", seconds=seconds)[0])


@contextmanager
def figures(name: str) -> Iterator[dict[str, float]]:
    """Collect seconds by what they are of, and log them."""
    found: dict[str, float] = {}
    yield found
    log.info("%s: %s", name, json.dumps({what: round(seconds, 1) for what, seconds in found.items()}))


def now() -> float:
    """The time by which events are noted: all machines here have one clock."""
    return time.time()
