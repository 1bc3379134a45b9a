"""A real `vllm serve` on this machine's CPU, from a virtual environment of its own (`make test-vllm`).

vLLM is a tree of processes, and when its front end is killed the engine lives on with its memory. So it has a process
group of its own, which ends by SIGKILL, also when the tests themselves are killed.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from app.domain.runtimes import RuntimeLoad
from app.local.guard import Guard
from executors.gauges import read_load
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors.running import wait_until_alive

ROOT = Path(__file__).parents[2]
MODEL = "tiny"
START_SECONDS = 300
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
GENERATE = ("--max-model-len", "2048", "--dtype", "float32", "--enforce-eager")


def home() -> Path | None:
    """The virtual environment that has vLLM, where there is one."""
    place = Path(os.environ.get("GPUYARD_TEST_VLLM", ROOT / ".venv-vllm"))
    return place if (place / "bin" / "vllm").exists() else None


def make_model(venv: Path, folder: Path) -> Path:
    """Write the tiny model into `folder`, unless it is there."""
    made = folder / "tiny-llama"
    if not (made / "tokenizer.json").exists():
        script = Path(__file__).with_name("make_model.py")
        subprocess.run([venv / "bin" / "python", script, made], check=True, env=os.environ | QUIET, timeout=120)
    return made


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class VllmServer:
    """One vLLM. Start it again after it was killed: it listens at the same URL."""

    venv: Path
    model: Path
    folder: Path
    options: tuple[str, ...] = GENERATE
    port: int = field(default_factory=_free_port)
    guard: Guard = field(default_factory=Guard)
    http: httpx.Client = field(default_factory=lambda: httpx.Client(verify=False, timeout=10))  # noqa: S501 - no TLS here
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"vllm-{self.port}.log"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.begin()
        self.until_it_answers()

    def begin(self) -> None:
        """Start it; it loads for seconds, in which nobody listens."""
        argv = [str(self.venv / "bin" / "vllm"), "serve", str(self.model), "--served-model-name", MODEL]
        argv += ["--host", "127.0.0.1", "--port", str(self.port), *self.options]
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self.log.open("ab") as log:
            self.process = self.guard.spawn(argv, env=inherited | QUIET, log=log, cwd=self.folder)

    def until_it_answers(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.is_healthy():
            assert self.process is not None
            assert self.process.poll() is None, self.last_words()
            assert time.monotonic() < end, self.last_words()
            time.sleep(0.2)

    def is_healthy(self) -> bool:
        with suppress(httpx.HTTPError):
            return self.http.get(f"{self.url}/health").status_code == 200
        return False

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def load(self) -> RuntimeLoad:
        """What its own gauges read."""
        load = read_load(self.http.get(f"{self.url}/metrics").content)
        assert load is not None
        return load

    def wait_for_load(self, *, running: int, seconds: float = 10) -> float:
        """Wait until it works on exactly so many rows; gives the seconds that took."""
        start = time.monotonic()
        while (load := self.load()).running != running:
            assert time.monotonic() - start < seconds, f"not within {seconds:g} s: {running} running: {load}"
            time.sleep(0.05)
        return time.monotonic() - start

    def engine_core(self) -> psutil.Process:
        """The process that computes; the one we started only answers HTTP."""
        return next(child for child in self._children() if "EngineCore" in _name(child))

    def bare_client(self, *arguments: object) -> list[str]:
        """The command of the client to compare with."""
        script = Path(__file__).with_name("bare_client.py")
        return [str(self.venv / "bin" / "python"), str(script), self.url, *map(str, arguments)]

    def terminate(self) -> None:
        """Ask it to end, as a service manager does, and wait until the front end has."""
        assert self.process is not None
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.kill()

    def kill(self) -> None:
        """End all of it."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.guard.ended(self.process.pid)
        self.process = None

    def close(self) -> None:
        """End all of it, once."""
        if not self.http.is_closed:
            self.kill()
            self.guard.close()
            self.http.close()

    def _children(self) -> Iterator[psutil.Process]:
        assert self.process is not None
        yield from psutil.Process(self.process.pid).children(recursive=True)


def executor_for(server: VllmServer) -> Iterator[VLLMExecutor]:
    """An executor that has looked at its server."""
    made = VLLMExecutor(ExecutorSettings(), server.url)
    wait_until_alive(made)
    yield made
    made.close()


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join([process.name(), *process.cmdline()])
    return ""
