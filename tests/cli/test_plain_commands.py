"""`celery -A app worker -Q gpu` as an owner of a GPU machine types it, beside a running installation."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.installation import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]
Until = Callable[..., None]


@pytest.fixture
def ready(served: Installation) -> dict[str, Any]:
    return served.ready()


@pytest.fixture
def celery(served: Installation, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started = []

    def start(*arguments: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "app", *arguments],
            cwd=tmp_path,
            env={**served.environment(), "GPUYARD_STATE_DIR": str(tmp_path / "state"), **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def worker_row(ready: dict[str, Any], name: str) -> dict[str, Any]:
    answer = httpx.get(
        ready["url"] + "/v1/workers", params={"gone": True}, headers={"authorization": f"Bearer {ready['api_key']}"}
    )
    return next((row for row in answer.json()["data"] if row["name"] == name), {})


def test_the_command_line_wins_and_sigterm_ends_it_in_good_order(
    ready: dict[str, Any], celery: Callable[..., subprocess.Popen[str]], tmp_path: Path, until: Until
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'broker_url = "{ready["broker_url"]}"\nserver_url = "{ready["url"]}"\nworker_name = "by-file"\n')
    worker = celery(
        *("worker", "-Q", "gpu", "--config", str(file), "--name", "by-hand", "--runtime", "fake"),
        *("--api-key", ready["worker_key"]),
        GPUYARD_WORKER_NAME="by-environment",
        GPUYARD_POOL="control-is-no-pool-of-mine",
    )
    until(lambda: worker_row(ready, "by-hand").get("phase") == "ready", seconds=40)
    assert worker_row(ready, "by-hand")["pool"] == "gpu"
    assert worker_row(ready, "by-environment") == worker_row(ready, "by-file") == {}

    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0, output
    assert "by-hand@" in output
    assert worker_row(ready, "by-hand")["state"] == "gone"


@pytest.mark.parametrize(
    ("arguments", "settings", "line"),
    [
        (("worker", "-Q", "gpu"), {}, "gpuyard: no broker: set GPUYARD_BROKER_URL"),
        (("beat",), {"GPUYARD_BROKR_URL": "redis://x"}, "did you mean GPUYARD_BROKER_URL?"),
        (("worker", "-Q", "gpu"), {"GPUYARD_BROKER_URL": "rediss://x"}, "ssl_cert_reqs=required"),
        (("worker", "-Q", "gpu"), {"GPUYARD_BROKER_URL": "memory://"}, "a worker needs GPUYARD_SERVER_URL and"),
        (("worker", "-Q", "GPU"), {"GPUYARD_BROKER_URL": "memory://"}, "'GPU' is no pool name"),
    ],
)
def test_what_cannot_work_ends_with_one_line(
    celery: Callable[..., subprocess.Popen[str]], arguments: tuple[str, ...], settings: dict[str, str], line: str
) -> None:
    process = celery(*arguments, **settings)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert line in output
    assert "Traceback" not in output


def test_what_the_agent_says_before_celery_starts_has_the_one_format_too(
    ready: dict[str, Any], celery: Callable[..., subprocess.Popen[str]]
) -> None:
    process = celery(
        *(
            "worker",
            "-Q",
            "gpu",
            "--runtime",
            "no-such-runtime",
            "--server-url",
            ready["url"],
            "--api-key",
            "gk-abcdefgh",
        ),
        GPUYARD_BROKER_URL=ready["broker_url"],
        GPUYARD_LOG_JSON="true",
    )
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    refusal = next(json.loads(line) for line in output.splitlines() if "worker.refused" in line)
    assert (refusal["process"], refusal["level"]) == ("worker", "error")
