"""The guard, by a real owner that is really killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.local.guard import Guard

Until = Callable[..., None]
Lives = Callable[[int], bool]

# An owner of two children (one deaf to SIGTERM, one with a child of its own), which then waits to be killed.
OWNER = """
import os, sys, time
from pathlib import Path
from app.local.guard import Guard
guard = Guard()
deaf = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); time.sleep(99)"
parent = "import subprocess,time; p=subprocess.Popen(['sleep','99']); print(p.pid, flush=True); time.sleep(99)"
for name, code in (("deaf", deaf), ("parent", parent)):
    with open(name, "wb") as log:
        child = guard.spawn((sys.executable, "-c", code), env=dict(os.environ), log=log, cwd=Path.cwd())
    Path(name + ".pid").write_text(str(child.pid))
Path("guard.pid").write_text(str(guard._process.pid))
time.sleep(99)
"""


@pytest.fixture
def owner(tmp_path: Path, until: Until) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    ready = [tmp_path / "guard.pid", tmp_path / "deaf", tmp_path / "parent"]
    until(lambda: all(path.exists() and path.read_text() for path in ready))
    return process


def pids(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("deaf.pid", "parent.pid", "parent", "guard.pid")]


@pytest.mark.slow
def test_a_killed_owner_leaves_no_process_behind_within_ten_seconds(
    owner: subprocess.Popen[bytes], tmp_path: Path, until: Until, lives: Lives
) -> None:
    everyone = pids(tmp_path)
    assert all(map(lives, everyone))
    owner.kill()
    owner.wait()

    until(lambda: not any(map(lives, everyone)), seconds=10)


def test_whoever_obeys_is_gone_long_before(
    owner: subprocess.Popen[bytes], tmp_path: Path, until: Until, lives: Lives
) -> None:
    deaf, parent, grandchild, _guard = pids(tmp_path)
    owner.kill()
    owner.wait()

    until(lambda: not lives(parent) and not lives(grandchild), seconds=2)
    os.kill(deaf, signal.SIGKILL)
    until(lambda: not any(map(lives, pids(tmp_path))), seconds=2)


def test_a_guard_that_was_killed_is_replaced_and_its_successor_knows_all(
    tmp_path: Path, until: Until, lives: Lives
) -> None:
    guard = Guard()
    with (tmp_path / "log").open("wb") as log:
        child = guard.spawn(("sleep", "60"), env=dict(os.environ), log=log, cwd=tmp_path)
    assert guard._process is not None
    first = guard._process
    first.kill()
    first.wait()

    guard.check()
    assert guard._process is not first
    os.close(guard._pipe)

    until(lambda: child.poll() is not None, seconds=3)
    assert guard._process is not None
    assert guard._process.wait(timeout=3) == 0


def test_a_child_that_was_waited_for_is_never_signalled_again(tmp_path: Path) -> None:
    guard = Guard()
    with (tmp_path / "log").open("wb") as log:
        child = guard.spawn(("true",), env=dict(os.environ), log=log, cwd=tmp_path)
    child.wait()
    guard.ended(child.pid)

    # Somebody else's process may get that number: the guard must have forgotten it, so it has nothing to wait for.
    process = guard._process
    assert process is not None
    guard.close()
    assert process.wait(timeout=2) == 0
