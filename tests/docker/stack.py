"""The stack of docker-compose.yml, driven as an operator drives it: by `docker compose`, with an .env that was made."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import httpx
from openai import OpenAI

from tests.e2e.submitted import Submitted

ROOT = Path(__file__).parents[2]
SERVER, WORKER, WORKER_LOCAL = (f"gpuyard-test-{image}" for image in ("server", "worker", "worker-local"))
CHAT = "/v1/chat/completions"
MODEL = "smollm2-135m-instruct"
BUILD_SECONDS = 600
UP_SECONDS = 300
BASE = re.findall(r"^ARG PYTHON=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0]
"""What the Dockerfile begins with."""


def run(command: Sequence[str], *, seconds: float = 120, env: dict[str, str] | None = None) -> str:
    """Run a command that must not fail; gives its standard output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT, env=env)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """One project of Compose. `compose` is the command; the rest is what a test wants to know often."""

    def __init__(self, folder: Path, *, name: str) -> None:
        self.name = name
        self.env_file = make_env(folder, name=name)
        self.port, self.flower_port = free_port(), free_port()
        chosen = {
            "GPUYARD_PORT": self.port,
            "FLOWER_PORT": self.flower_port,
            "GPUYARD_SERVER_IMAGE": SERVER,
            "GPUYARD_WORKER_IMAGE": WORKER,
            "GPUYARD_WORKER_LOCAL_IMAGE": WORKER_LOCAL,
        }
        with self.env_file.open("a") as file:
            file.writelines(f"{variable}={value}\n" for variable, value in chosen.items())

    @cached_property
    def env(self) -> dict[str, str]:
        """What .env says."""
        lines = self.env_file.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def compose(self, *arguments: str, seconds: float = 120) -> str:
        """`docker compose …`, which must not fail."""
        return run(self.command(*arguments), seconds=seconds, env=plain_environment())

    def command(self, *arguments: str) -> list[str]:
        files = ["--project-directory", str(ROOT), "--file", str(ROOT / "docker-compose.yml")]
        return ["docker", "compose", "--project-name", self.name, "--env-file", str(self.env_file), *files, *arguments]

    def build(self, service: str) -> None:
        """Build a service's image. What BuildKit has done it keeps, so that a second try is cheap.

        There is one because BuildKit drops clients that a machine under load had no time for, in the middle of a build.
        """
        for last in (False, True):
            try:
                self.compose("--profile", "*", "build", service, seconds=BUILD_SECONDS)
            except AssertionError:
                if last:
                    raise
            else:
                return

    def up(self, *services: str) -> None:
        """Start, and wait until every part is healthy; what a part said stands in the failure."""
        try:
            self.compose("up", "--detach", "--wait", "--no-build", *services, seconds=UP_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self, *services: str) -> str:
        return self.compose("logs", "--no-color", "--tail", "40", *services)

    def remove(self) -> None:
        """Leave nothing behind, whatever happened."""
        subprocess.run(
            self.command("--profile", "*", "down", "--volumes", "--timeout", "5", "--remove-orphans"),
            capture_output=True,
            check=False,
            env=plain_environment(),
        )

    def close(self) -> None:
        """Close this side's connections."""
        for client in ("sdk", "http"):
            if client in self.__dict__:
                self.__dict__.pop(client).close()

    def containers(self) -> dict[str, dict[str, Any]]:
        """What `docker compose ps --all` shows, by service."""
        found = self.compose("ps", "--all", "--format", "json").splitlines()
        return {part["Service"]: part for part in map(json.loads, found)}

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of a service's container."""
        (container,) = self.compose("ps", "--all", "--quiet", service).split()
        (found,) = json.loads(run(["docker", "inspect", container]))
        return dict(found)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @cached_property
    def sdk(self) -> OpenAI:
        """The stock SDK, with the key of .env."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.env["GPUYARD_BOOTSTRAP_TOKEN"])

    @cached_property
    def http(self) -> httpx.Client:
        key = self.env["GPUYARD_BOOTSTRAP_TOKEN"]
        return httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=30)

    def submit(self, rows: Iterable[tuple[str, int]]) -> Submitted:
        """Send a batch of questions, each with the most tokens that its answer may have; row N is called `row-N`."""
        content = "".join(json.dumps(row(number, *asked)) + "\n" for number, asked in enumerate(rows))
        file = self.sdk.files.create(file=("input.jsonl", content.encode()), purpose="batch")
        made = self.sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        return Submitted(self.sdk, self.http, made.id)


class Deaths:
    """Which containers of a project end while this is open, and how. Compose removes them before one could ask."""

    def __init__(self, project: str, log: Path) -> None:
        self._log = log
        filters = [f"label=com.docker.compose.project={project}", "event=die"]
        argv = ["docker", "events", *(part for found in filters for part in ("--filter", found))]
        with log.open("wb") as output:
            self._process = subprocess.Popen([*argv, "--format", "{{json .}}"], stdout=output)

    def __enter__(self) -> Self:
        """Listen."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._process.terminate()
        self._process.wait(30)

    def exit_codes(self, services: set[str]) -> dict[str, int]:
        """Give the exit code of each of these services, as soon as all have ended."""
        end = time.monotonic() + 30
        while True:
            said = [json.loads(line)["Actor"]["Attributes"] for line in self._log.read_text().splitlines()]
            codes = {found["com.docker.compose.service"]: int(found["exitCode"]) for found in said}
            if services <= codes.keys():
                return {service: codes[service] for service in services}
            assert time.monotonic() < end, f"not all of {services} ended: {codes}"
            time.sleep(0.1)


def make_env(folder: Path, *, name: str) -> Path:
    """Make an .env by the script that users run, beside a copy of the example; `name` is no stack's of this machine."""
    (folder / "deploy").mkdir()
    shutil.copy(ROOT / ".env.example", folder)
    script = shutil.copy(ROOT / "deploy" / "new-env.sh", folder / "deploy")
    run(["sh", str(script)], env=plain_environment() | {"COMPOSE_PROJECT_NAME": name})
    return folder / ".env"


def plain_environment() -> dict[str, str]:
    """The caller's environment without its settings: Compose would take them before those of .env."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")}


def row(number: int, text: str, max_tokens: int) -> dict[str, Any]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "temperature": 0}
    return {"custom_id": f"row-{number}", "method": "POST", "url": CHAT, "body": body}
