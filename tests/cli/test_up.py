"""`gpuyard up`, whole and real. The tests of this file follow one installation through its life, in order."""

import io
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from rich.console import Console

from app.cli.up import Screen, stop_on_signals
from tests.installation import Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]
Until = Callable[..., None]


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(scope="module")
def ready(installation: Installation) -> dict[str, Any]:
    found: dict[str, Any] = installation.up("--workers", "2", "--flower")
    return found


def test_the_ready_file_says_where_everything_is(installation: Installation, ready: dict[str, Any]) -> None:
    assert set(ready) == {"url", "api_key", "worker_key", "broker_url", "flower_url", "pids"}
    assert set(ready["pids"]) == {"api", "control", "beat", "broker", "flower", "workers"}
    assert len(ready["pids"]["workers"]) == 2
    alive = [ready["pids"][name] for name in ("api", "control", "beat", "broker")] + ready["pids"]["workers"]
    assert all(map(psutil.pid_exists, alive))
    assert httpx.get(ready["url"] + "/readyz").status_code == 200


def test_both_workers_are_registered_by_then(ready: dict[str, Any]) -> None:
    workers = httpx.get(ready["url"] + "/v1/workers", headers={"authorization": f"Bearer {ready['api_key']}"}).json()

    assert {worker["name"].rpartition("-")[2] for worker in workers["data"]} >= {"1", "2"}


def test_flower_shows_the_workers_and_their_queue_and_can_change_nothing(ready: dict[str, Any]) -> None:
    workers = httpx.get(ready["flower_url"] + "/api/workers").json()

    assert {name.partition("@")[0].rpartition("-")[2] for name in workers} >= {"1", "2"}
    assert {queue["name"] for worker in workers.values() for queue in worker["active_queues"]} == {"gpu", "control"}
    shutdown = httpx.post(ready["flower_url"] + f"/api/worker/shutdown/{next(iter(workers))}")
    assert shutdown.status_code == 403


def test_the_workers_key_is_no_admins(ready: dict[str, Any]) -> None:
    answer = httpx.get(ready["url"] + "/v1/tokens", headers={"authorization": f"Bearer {ready['worker_key']}"})

    assert answer.status_code == 403


def test_files_with_keys_are_their_owners_alone(installation: Installation, ready: dict[str, Any]) -> None:
    local = installation.home / "gpuyard" / "local.json"
    for path in (installation.ready_file, installation.data / "keys.json", local, installation.data / "local.json"):
        assert mode(path) == 0o600
    assert mode(installation.data) == 0o700


def test_no_key_stands_in_a_log_or_on_a_command_line(installation: Installation, ready: dict[str, Any]) -> None:
    keys = [ready["api_key"], ready["worker_key"]]
    texts = [path.read_text() for path in (installation.data / "logs").iterdir()] + [installation.output.read_text()]
    texts += [" ".join(process.cmdline()) for process in installation.everyone()]

    assert not [text for text in texts for key in keys if key in text]


def test_the_command_line_finds_the_server_by_itself(installation: Installation, ready: dict[str, Any]) -> None:
    shown = installation.run("config", "show", "--json")

    found = json.loads(shown.stdout)["server_url"]
    assert found["value"] == ready["url"]
    assert found["from"].startswith("gpuyard up")
    assert ready["api_key"] not in shown.stdout


def test_a_second_one_on_the_same_data_is_a_clear_error(installation: Installation, ready: dict[str, Any]) -> None:
    second = installation.run("up", "--data", str(installation.data), "--port", "0")

    assert second.returncode == 1
    assert installation.process is not None
    assert f"another gpuyard up (pid {installation.process.pid}) runs on" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.long
def test_one_in_another_folder_leaves_the_commands_to_the_one_that_runs_in_the_usual_folder(tmp_path: Path) -> None:
    usual, other = Installation(tmp_path / "usual"), Installation(tmp_path / "other")
    usual.data = usual.home / "gpuyard"
    for folder in (usual.ready_file.parent, other.ready_file.parent):
        folder.mkdir()
    other.home = usual.home
    try:
        first = usual.up("--no-worker")
        second = other.up("--no-worker")
        assert json.loads((usual.data / "local.json").read_text()) == first
        assert json.loads((other.data / "local.json").read_text()) == second
        assert f"GPUYARD_DATA_DIR={other.data}" in other.output.read_text()
        other.stop()
        assert json.loads((usual.data / "local.json").read_text()) == first
    finally:
        for started in (other, usual):
            if started.process is not None and started.process.poll() is None:
                started.stop()


def test_a_port_in_use_is_a_clear_error(installation: Installation, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        second = installation.run("up", "--data", str(tmp_path), "--port", str(port))

    assert second.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in second.stderr


def test_a_part_that_dies_is_started_again_and_the_ready_file_says_so(
    installation: Installation, ready: dict[str, Any], until: Until
) -> None:
    os.kill(ready["pids"]["control"], signal.SIGKILL)

    until(lambda: installation.ready()["pids"]["control"] not in (None, ready["pids"]["control"]))
    assert installation.ready()["pids"]["api"] == ready["pids"]["api"]


def test_a_part_that_dies_while_the_disk_is_full_takes_nothing_else_along(
    installation: Installation, ready: dict[str, Any], until: Until
) -> None:
    assert installation.process is not None
    up = psutil.Process(installation.process.pid)
    before = installation.ready()
    old = psutil.Process(before["pids"]["beat"])
    others = {child.pid for child in up.children()}

    up.rlimit(psutil.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    old.kill()
    until(lambda: {child.pid for child in up.children()} - others)
    until(lambda: gone(old))
    assert installation.ready() == before, "it cannot be written"

    up.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: installation.ready()["pids"]["beat"] != old.pid)
    after = installation.ready()["pids"]
    assert {**after, "beat": None} == {**before["pids"], "beat": None}
    os.kill(after["beat"], signal.SIGKILL)  # it was started with no room for its log
    until(lambda: installation.ready()["pids"]["beat"] not in (None, after["beat"]))


def test_ctrl_c_ends_all_of_it_in_order(installation: Installation, ready: dict[str, Any]) -> None:
    everyone = installation.everyone()

    assert installation.stop(signal.SIGINT) == 0

    assert [process for process in everyone if not gone(process)] == []
    stops = [line for line in installation.output.read_text().splitlines() if "stopping" in line]
    assert [line.partition("stopping ")[2] for line in stops] == [
        "worker-1, worker-2",
        "flower, control, beat, api",
        "broker",
    ]
    assert "worker.left" in (installation.data / "logs" / "worker-1.log").read_text()
    assert not installation.ready_file.exists()
    assert not (installation.home / "gpuyard" / "local.json").exists()


def test_started_again_it_goes_on_and_killed_it_leaves_nothing_behind(
    installation: Installation, ready: dict[str, Any], until: Until
) -> None:
    again = installation.up()
    assert (again["api_key"], again["worker_key"]) == (ready["api_key"], ready["worker_key"])
    everyone = installation.everyone()
    assert len(everyone) >= 7

    assert installation.stop(signal.SIGKILL) == -signal.SIGKILL

    until(lambda: all(map(gone, everyone)), seconds=10)


def test_after_a_kill_it_starts_on_the_same_data(installation: Installation, ready: dict[str, Any]) -> None:
    installation.ready_file.unlink()
    assert installation.up("--no-worker")["api_key"] == ready["api_key"]

    assert installation.stop(signal.SIGTERM) == 0


def test_on_a_terminal_the_first_ctrl_c_has_it_say_what_another_does() -> None:
    out, asked = io.StringIO(), list[str]()
    with Screen(Console(file=out, force_terminal=True, width=200)) as screen:
        with stop_on_signals(lambda: asked.append("to stop"), screen.stop_asked):
            os.kill(os.getpid(), signal.SIGINT)
        screen.say("stopping worker-1")

    assert asked == ["to stop"]
    assert "stopping worker-1 · another Ctrl-C does not wait" in out.getvalue()


def test_a_terminal_that_is_closed_stops_it_in_good_order(
    installation: Installation, ready: dict[str, Any], until: Until
) -> None:
    ours, theirs = os.openpty()
    installation.ready_file.unlink(missing_ok=True)
    process = installation.process = subprocess.Popen(
        installation.up_command("--no-worker"),
        env=installation.environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    until(installation.ready_file.exists, seconds=100)
    everyone = installation.everyone()
    os.close(ours)
    process.send_signal(signal.SIGHUP)  # as the kernel does for a session's terminal

    assert process.wait(60) == 0
    assert [process for process in everyone if not gone(process)] == []
    assert not installation.ready_file.exists()
