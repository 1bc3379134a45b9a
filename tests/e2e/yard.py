"""A whole yard for tests: `gpuyard up`, GPU workers that nobody starts again, a mock engine, and the stock SDK.

The timings are the product's own ladder, a tenth as long, so that a lost worker is missed after seconds. Workers are
started here and not by `up`, which would start a killed one again before anybody had missed it.
"""

import itertools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import httpx
import psutil
from openai import OpenAI
from redis import Redis

from app.local.guard import Guard
from config.broker_url import for_redis
from tests.e2e.submitted import Submitted
from tests.fakes.runtime_process import RuntimeProcess, start_runtime
from tests.installation import Installation

TIMING = {
    "GPUYARD_RENEW_SECONDS": "1",
    "GPUYARD_GRACE_SECONDS": "3",
    "GPUYARD_TOLERATION_SECONDS": "8",
    "GPUYARD_KILL_AFTER_SECONDS": "0.5",
    "GPUYARD_DRAIN_SECONDS": "1",
    "GPUYARD_SWEEP_SECONDS": "1",
    "GPUYARD_SEGMENT_SECONDS": "0.5",
    "GPUYARD_RETRY_MAX_SECONDS": "2",
}
TOLERATION_SECONDS = 8.0
WORKER_SECONDS = 60.0
PROMPTS = 8
"""Rows a worker has in flight at most."""
GPUYARD = (sys.executable, "-m", "app.cli.main")
CELERY = (sys.executable, "-m", "celery", "-A")
_CELERY_AS_UP_STARTS_IT = (sys.executable, "-m", "app.local.celery_command", "-A")
_Found = TypeVar("_Found")


def until(condition: Callable[[], _Found], what: str, *, seconds: float = 30) -> _Found:
    """Give the first true value of `condition`; fails when there is none within `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return found


class GuardedInstallation(Installation):
    """Whatever ends the tests, `kill -9` included, ends it as well."""

    guard: Guard

    def spawn(self, argv: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        return self.guard.spawn(argv, env=self.environment(), log=output, cwd=self.data.parent)


class Process:
    """One process a test started; its output lies in `log`."""

    def __init__(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], log: Path, guard: Guard) -> None:
        self.name = name
        self.log = log
        self._before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._popen = guard.spawn(argv, env=env, log=output, cwd=log.parent)
        self.pid = self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def until_it_says(self, text: str, *, seconds: float = WORKER_SECONDS) -> None:
        """Wait for a line of its output; what an earlier process of the name said does not count."""

        def said() -> bool:
            assert self.alive, self.log.read_text()
            return text.encode() in self.log.read_bytes()[self._before :]

        until(said, f"{self.name} says {text!r}", seconds=seconds)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait(10)

    def send(self, number: int) -> None:
        """Send a signal and wait for nothing."""
        self._popen.send_signal(number)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM, *, seconds: float = 20) -> int:
        """Ask it to end, and give its exit code; one that does not end is killed, and that is a failure."""
        self._popen.send_signal(number)
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class Yard:
    """Use it as a context: it runs inside, and nothing of it runs after."""

    def __init__(
        self,
        folder: Path,
        *,
        database_url: str | None = None,
        timing: Mapping[str, str] = TIMING,
        transports: Sequence[str] = ("celery",),
        **settings: object,
    ) -> None:
        """Make no process yet. `settings` are the product's, by their names in lower case.

        Workers take turns with `transports`: how each hears of work, `celery` or `http`.
        """
        given = {f"GPUYARD_{name.upper()}": str(value) for name, value in settings.items()}
        if database_url:
            given["GPUYARD_DATABASE_URL"] = database_url
        self.folder = folder
        self.installation = GuardedInstallation(folder, {**timing, **given})
        self.workers: dict[str, Process] = {}
        self._transports = itertools.cycle(transports)
        self._transport_of: dict[str, str] = {}
        self._processes: list[Process] = []

    def start(self, *options: str) -> Self:
        """Start the engine and everything but workers."""
        self._guard = self.installation.guard = Guard()
        self.runtime = self._start_runtime()
        self.installation.up("--no-worker", *options)
        ready = self.ready
        self.url: str = ready["url"]
        # An API that was killed is away for seconds: both clients try again until it is back.
        self.sdk = OpenAI(base_url=f"{self.url}/v1", api_key=ready["api_key"], timeout=30, max_retries=10)
        self.http = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {ready['api_key']}"},
            timeout=30,
            transport=httpx.HTTPTransport(retries=6),
        )
        self.redis = Redis.from_url(for_redis(ready["broker_url"]), socket_timeout=5)
        return self

    def __enter__(self) -> Self:
        """Nothing runs before `start`."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it, frozen parts too, and make sure that nothing is left."""
        for process in self._processes:
            if process.alive:
                process.kill()
        installation = self.installation
        try:
            if installation.process is not None and installation.process.poll() is None:
                everyone = installation.everyone()
                for part in everyone:
                    part.resume()
                installation.stop(signal.SIGINT)
                assert psutil.wait_procs(everyone, timeout=10)[1] == []
        finally:
            for closing in ("sdk", "http", "redis"):
                if hasattr(self, closing):
                    getattr(self, closing).close()
            if hasattr(self, "runtime"):
                self.runtime.kill()
            if hasattr(self, "_guard"):
                self._guard.close()

    def _start_runtime(self) -> RuntimeProcess:
        """Start what answers rows; a yard of another kind may have another."""
        return start_runtime(self.folder, "--slots", 1000, spawn=self.spawn_engine)

    def spawn_engine(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Start a mock engine that ends with the yard."""
        with (self.folder / "engine.log").open("ab") as log:
            return self._guard.spawn(argv, env=self.installation.environment(), log=log, cwd=self.folder)

    # --- parts

    @property
    def ready(self) -> dict[str, Any]:
        """The ready file, as it stands now."""
        return self.installation.ready()

    def pid(self, part: str) -> int:
        """The process that is `part` now: broker, api, control, beat."""
        found: int = until(lambda: self.ready["pids"][part], f"{part} runs")
        return found

    def kill(self, part: str) -> None:
        """`kill -9`; gives back control when `up` has another one running."""
        old = self.pid(part)
        os.kill(old, signal.SIGKILL)
        until(lambda: self.ready["pids"][part] not in (None, old), f"up starts {part} again")

    @contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        """Stop a part as if its machine had frozen, and let it go on after the block."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGSTOP)
        while not self._database_is_free():  # frozen with SQLite's only write lock, it would freeze everybody
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _database_is_free(self) -> bool:
        file = self.installation.data / "gpuyard.db"
        if not file.exists():
            return True
        with closing(sqlite3.connect(file, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
        return True

    def run(self, name: str, *argv: str, **settings: object) -> Process:
        """Start a process with the environment a user would give it."""
        env = self.installation.environment() | {
            "GPUYARD_DATA_DIR": str(self.installation.data),
            "GPUYARD_BROKER_URL": self.ready["broker_url"],
            "GPUYARD_SERVER_URL": self.url,
        }
        env |= {f"GPUYARD_{key.upper()}": str(value) for key, value in settings.items()}
        process = Process(name, argv, env=env, log=self.folder / f"{name}.log", guard=self._guard)
        self._processes.append(process)
        return process

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `gpuyard …` to its end, with an admin's key."""
        env = self.installation.environment() | {
            "GPUYARD_SERVER_URL": self.url,
            "GPUYARD_API_KEY": self.ready["api_key"],
        }
        return subprocess.run(
            [*GPUYARD, *arguments], env=env, cwd=self.folder, capture_output=True, text=True, timeout=90, check=False
        )

    def worker(
        self,
        name: str,
        *,
        pool: str = "gpu",
        transport: str | None = None,
        through: Sequence[str] = (),
        **settings: object,
    ) -> Process:
        """Start a GPU worker as `gpuyard up` does for its transport; `until_present` waits for it.

        One that starts again keeps its transport. A worker without a broker is told of none. `through` is a command
        that runs commands, such as `env`.
        """
        ours: dict[str, object] = {
            "api_key": self.ready["worker_key"],
            "worker_name": name,
            "state_dir": self.folder / "workers" / name,
            "runtime": "vllm",
            "runtime_url": self.runtime.url,
            "max_concurrent_prompts": PROMPTS,
        }
        chosen = transport or self._transport_of.get(name) or next(self._transports)
        self._transport_of[name] = chosen
        if chosen == "http":
            argv = (*GPUYARD, "worker", "--transport", "http", "--pool", pool)
            ours["broker_url"] = ""
        else:
            argv = (*_CELERY_AS_UP_STARTS_IT, "app", "worker", "-Q", pool)
        worker = self.run(name, *through, *argv, **(ours | settings))
        self.workers[name] = worker
        return worker

    def until_present(self, *names: str) -> None:
        """Wait until these workers are registered and listen."""
        for name in names:
            self.workers[name].until_it_says("worker.ready")
            listens = "polls.began" if self._transport_of[name] == "http" else f"{name}@{socket.gethostname()} ready."
            self.workers[name].until_it_says(listens)

    def kill_at_work(self, name: str) -> None:
        """Kill a worker as soon as it holds shards: one that has not come to work yet leaves nothing to be missed."""

        def holds() -> bool:
            slots = self.http.get(f"/v1/workers/{name}").json()["slots"]["batches"]
            return bool(slots["free"] < slots["total"])

        until(holds, f"{name} holds shards")
        self.workers[name].kill()

    @contextmanager
    def manned(self, *names: str) -> Iterator[Self]:
        """Have these workers inside the block. What is there at its end leaves in good order, for others to come."""
        for name in names:
            self.worker(name)
        self.until_present(*names)
        try:
            yield self
        finally:
            left = [worker for worker in self.workers.values() if worker.alive]
            for worker in left:
                worker.thaw()
                worker.send(signal.SIGTERM)
            for worker in left:
                until(lambda: not worker.alive, f"{worker.name} leaves")  # noqa: B023 - now
            self.workers.clear()

    # --- work

    def submit(
        self, lines: bytes, *, window: str = "24h", endpoint: str = "/v1/chat/completions", **ours: Any
    ) -> Submitted:
        """Upload and create by the stock SDK; `ours` are gpuyard's own arguments."""
        uploaded = self.sdk.files.create(file=("input.jsonl", lines), purpose="batch")
        batch = self.sdk.batches.create(
            input_file_id=uploaded.id,
            endpoint=endpoint,  # type: ignore[arg-type]
            completion_window=window,  # type: ignore[arg-type]
            extra_body=ours or None,
        )
        return Submitted(self.sdk, self.http, batch.id)

    def events(self, batch_id: str) -> list[dict[str, Any]]:
        """The events of a batch, oldest first."""
        found: list[dict[str, Any]] = []
        while page := self._page(batch_id, found[-1]["id"] if found else None):
            found += page
        return found

    def _page(self, subject: str, after: str | None) -> list[dict[str, Any]]:
        asked = {"subject": subject, "limit": "1000"} | ({"after": after} if after else {})
        answer = self.http.get("/v1/events", params=asked)
        answer.raise_for_status()
        page: list[dict[str, Any]] = answer.json()["data"]
        return page
