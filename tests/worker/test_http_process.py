"""`gpuyard worker --transport http` as a process: no Celery in it, Celery's exit codes, its signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.control_plane import FakeControlPlane, Hang, refusal, rows

ROOT = Path(__file__).parents[2]
START_SECONDS = 25
NO_CELERY = """
import sys, importlib.abc
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"celery", "billiard"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
"""
Process = subprocess.Popen[bytes]
Start = Callable[..., Process]


@pytest.fixture
def start(plane: FakeControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Start the command as a user does; a `sitecustomize` keeps Celery away from it."""
    (tmp_path / "sitecustomize.py").write_text(NO_CELERY)
    started: list[Process] = []

    def begin(*options: str) -> Process:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")}
        argv = [sys.executable, "-m", "app.cli.main", "worker", "--transport", "http", "--runtime", "fake"]
        argv += ["--server-url", plane.url, "--api-key", "gk-test", "--name", "gpu-1"]
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [*argv, "--state-dir", str(tmp_path / "state"), *options],
                env=ours | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text()


def test_it_works_without_celery_and_leaves_in_good_order_at_sigterm(
    plane: FakeControlPlane, start: Start, tmp_path: Path
) -> None:
    worker = start("--runtime-url", "fake:", "--pool", "night")
    plane.wait(lambda: plane.called("poll"), START_SECONDS)
    assert "gk-test" not in Path(f"/proc/{worker.pid}/cmdline").read_text()
    plane.give_batch(list(rows(8)))
    plane.wait(lambda: len(plane.stored) == 8)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0, log_of(tmp_path)
    assert plane.called("register")[0].body["pool"] == "night"
    assert [call.body["reason"] for call in plane.called("bye")] == ["signal"]


def test_a_second_signal_grants_no_more_time(plane: FakeControlPlane, start: Start, tmp_path: Path) -> None:
    plane.give_batch(list(rows(4)))
    worker = start("--runtime-url", "fake:?latency_ms=60000", "--drain-seconds", "60")
    plane.wait(lambda: plane.leases, START_SECONDS)
    worker.send_signal(signal.SIGINT)
    plane.wait(lambda: any(call.body["phase"] == "draining" for call in plane.called("heartbeat")))
    began = time.monotonic()
    worker.send_signal(signal.SIGINT)
    assert worker.wait(30) == 0, log_of(tmp_path)
    assert time.monotonic() - began < 30
    assert set(plane.states().values()) == {"released"}


def test_a_signal_in_the_midst_of_a_hello_gives_it_up_and_says_so(
    plane: FakeControlPlane, start: Start, tmp_path: Path
) -> None:
    first = start("--runtime-url", "fake:")
    plane.wait(lambda: plane.called("poll"), START_SECONDS)
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0, log_of(tmp_path)
    never = threading.Event()
    plane.next("register", Hang(never))
    second = start("--runtime-url", "fake:")
    plane.wait(lambda: len(plane.called("register")) == 2, START_SECONDS)
    second.send_signal(signal.SIGTERM)
    try:
        assert second.wait(30) == 0, log_of(tmp_path)
    finally:
        never.set()
    assert [call.body["reason"] for call in plane.called("bye")] == ["signal", "signal"]


def test_a_refused_worker_exits_1_with_the_reason(plane: FakeControlPlane, start: Start, tmp_path: Path) -> None:
    plane.next("register", refusal(401, "invalid_api_key", "this key was revoked"))
    assert start("--runtime-url", "fake:").wait(START_SECONDS) == 1
    assert "this key was revoked" in log_of(tmp_path)


def test_a_wrong_setting_is_one_line_and_exit_1(plane: FakeControlPlane, start: Start, tmp_path: Path) -> None:
    assert start("--pool", "no pool!").wait(START_SECONDS) == 1
    assert log_of(tmp_path).startswith("gpuyard: settings of the worker: pool")
    assert plane.calls == []


def test_a_signal_before_it_is_ready_ends_it(plane: FakeControlPlane, start: Start, tmp_path: Path) -> None:
    plane.next("register", *[refusal(503)] * 100)
    worker = start("--runtime-url", "fake:", "--retry-min-seconds", "30")
    plane.wait(lambda: plane.called("register"), START_SECONDS)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0, log_of(tmp_path)
