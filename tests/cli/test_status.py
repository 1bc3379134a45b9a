"""`gpuyard status`, and what every command keeps to: `--json`, exit codes that are documented, no colour when asked."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from app.cli.errors import MEANINGS, ExitCode
from app.cli.main import app
from tests.commands import Commands
from tests.fakes.public_api import FakePublicApi, Says, batch

PRINT_NOTHING_TO_PARSE = {"up", "serve", "worker"}
"""They run until they are stopped, and log."""


def worker(name: str = "vm-1", state: str = "active", **more: Any) -> dict[str, Any]:
    return {
        "id": f"wrk_{name}",
        "name": name,
        "pool": "gpu",
        "state": state,
        "seen_seconds": 3.0,
        "slots": {"batches": {"total": 1, "free": 1}},
        "gpus": [{"index": 0, "utilization": 97.0}],
        "no_lease": "nothing",
        "runtimes": [{"name": "vllm", "alive": True, "reason": None}],
        "drain_requested_at": None,
        **more,
    }


def listing(*data: Any) -> Says:
    return Says({"object": "list", "data": list(data), "has_more": False})


def says(api: FakePublicApi, *, workers: list[Any] | None = None, batches: list[Any] | None = None) -> None:
    api.says("GET /v1/pools", listing({"name": "gpu", "default": True}))
    api.says("GET /v1/workers", listing(*([worker()] if workers is None else workers)))
    api.says("GET /v1/batches", listing(*(batches or [])))
    event = {"id": "7", "at": 0.5, "type": "batch.created", "subject": "batch_b", "actor": "x", "data": {"rows": 3}}
    api.says("GET /v1/events", listing(event))


def test_once_it_shows_pools_workers_with_why_batches_and_the_last_events(api: FakePublicApi, told: Commands) -> None:
    runs = batch("in_progress", completed=1, gpuyard={"pool": "gpu", "workers": 1, "rows_per_second": 2.0})
    says(api, batches=[runs, batch() | {"id": "batch_done"}])
    done = told.run("status", "--once")

    assert (done.code, done.err) == (0, "")
    text = done.out
    for word in ("all is well", "gpu*", "1/1", "vm-1", "97%", "nothing waits that it could run", "1/1 up"):
        assert word in text, word
    for word in ("batch_b", "in_progress", "1/3", "2.0 rows/s", "batch_done", "batch.created", "rows=3"):
        assert word in text, word
    assert "\x1b" not in text


def test_what_needs_a_person_is_said_first_and_is_exit_code_6(api: FakePublicApi, told: Commands) -> None:
    down = {"name": "vllm", "alive": False, "reason": "connection refused"}
    waits = batch("in_progress", completed=0, gpuyard={"pool": "big", "workers": 0, "waiting_reason": "no worker"})
    says(api, workers=[worker("lost", "offline"), worker("ill", runtimes=[down])], batches=[waits])
    done = told.run("status")
    found = told.run("status", "--json")

    assert (done.code, found.code) == (6, 6)
    assert found.document["attention"] == [
        "worker lost is offline",
        "worker ill: 0/1 up, vllm: connection refused",
        "batch_b waits: no worker",
    ]
    assert "look at this" in done.out.splitlines()[0]
    assert set(found.document) == {"at", "attention", "pools", "workers", "batches", "events"}
    assert found.document["pools"][0] == {
        "name": "gpu",
        "default": True,
        "workers": 2,
        "ready": 1,
        "slots": 2,
        "free": 2,
        "running": 0,
        "waiting": 0,
    }


def test_a_batch_that_waits_for_its_contents_needs_a_person(api: FakePublicApi, told: Commands) -> None:
    ours = {"pool": "gpu", "state": "finalizing", "workers": 0, "waiting_reason": "the store of contents is away"}
    says(api, batches=[batch("finalizing", gpuyard=ours)])
    done = told.run("status", "--json")

    assert done.code == 6
    assert done.document["attention"] == ["batch_b waits: the store of contents is away"]


def test_a_batch_with_a_damaged_file_needs_a_person_after_its_end(api: FakePublicApi, told: Commands) -> None:
    ours = {"pool": "gpu", "state": "completed", "damaged": "the output file file-1: it is gone"}
    says(api, batches=[batch("completed", gpuyard=ours)])
    done = told.run("status", "--json")

    assert done.code == 6
    assert done.document["attention"] == [
        "batch_b: the output file file-1: it is gone; see `gpuyard doctor --contents`",
    ]


def test_a_server_that_is_away_is_exit_code_5(tmp_path: Path) -> None:
    nowhere = Commands(tmp_path, {"GPUYARD_SERVER_URL": "http://127.0.0.1:1", "GPUYARD_API_KEY": "gk-any"})
    assert nowhere.run("status", "--once").code == 5


@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_it_is_live_until_ctrl_c_and_without_colour_when_asked(
    api: FakePublicApi, told: Commands, no_color: str
) -> None:
    says(api)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = subprocess.Popen(
        [*told.argv, "status", "--every", "0.2"],
        env=told.environment(TERM="xterm", NO_COLOR=no_color),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown, looked = b"", lambda: sum(call.startswith("GET /v1/pools") for call in api.calls)
    stopped = False
    while select.select([ours], [], [], 30)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if looked() >= 3 and not stopped:
            process.send_signal(signal.SIGINT)
            stopped = True
    os.close(ours)

    assert process.wait(timeout=30) == ExitCode.INTERRUPTED
    assert "all is well" in shown.decode()
    assert (b"\x1b[32m" in shown) is (not no_color)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if getattr(command, "invoke_without_command", False) or not hasattr(command, "commands"):
        yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


def test_every_command_that_prints_can_print_json() -> None:
    found = dict(commands(typer.main.get_command(app)))
    without = {
        " ".join(words) for words, command in found.items() if not any("--json" in part.opts for part in command.params)
    }
    assert without == PRINT_NOTHING_TO_PARSE
    assert len(found) > 25


def test_every_exit_code_has_its_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)
