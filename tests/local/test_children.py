import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.local.children import Child, Part
from app.local.guard import Guard
from app.local.logs import LOG_BYTES

Until = Callable[..., None]
DEAF = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
# As a GPU worker does: the first signal drains, the second ends.
DRAINS = """
import signal, sys, time
asked = 0
def ask(*_):
    global asked
    asked += 1
    print("draining", flush=True)
    if asked == 2:
        sys.exit(3)
signal.signal(signal.SIGTERM, ask)
print("up", flush=True)
time.sleep(60)
"""
WITH_A_CHILD = (
    "import subprocess,sys,time; p=subprocess.Popen(['sleep','60']); print(p.pid, flush=True); time.sleep(60)"
)


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture
def child(guard: Guard, tmp_path: Path, until: Until) -> Iterator[Callable[..., Child]]:
    all_made = []

    def make(code: str, **part: object) -> Child:
        made = Child(
            Part("part", (sys.executable, "-c", code), dict(os.environ), **part),  # type: ignore[arg-type]
            guard=guard,
            logs=tmp_path,
            cwd=tmp_path,
        )
        made.start()
        all_made.append(made)
        return made

    yield make
    for made in all_made:
        made.stop(within_seconds=0)
        until(made.stopped)


def test_the_log_of_a_child_that_runs_on_is_bounded(child: Callable[..., Child], until: Until, tmp_path: Path) -> None:
    part = child(f"import time; print('x' * {LOG_BYTES}, flush=True); time.sleep(60)")
    log, older = tmp_path / "part.log", tmp_path / "part.log.1"
    until(lambda: log.stat().st_size > LOG_BYTES)
    part.poll()
    assert (log.stat().st_size, older.stat().st_size) == (0, LOG_BYTES + 1)
    assert part.running


def test_a_child_that_dies_is_started_again_with_a_growing_pause(
    child: Callable[..., Child], until: Until, tmp_path: Path
) -> None:
    part = child("print('up', flush=True)")
    starts = [time.monotonic()]

    def started_thrice() -> bool:
        before = part.restarts
        part.poll()
        if part.restarts > before:
            starts.append(time.monotonic())
        return part.restarts == 2

    until(started_thrice)
    until(part.ended)

    assert part.last_exit == 0
    assert part.reason() == "up", "of the last start"
    assert (tmp_path / "part.log").read_text() == "up\n" * 3
    assert starts[2] - starts[1] > 1.5 * (starts[1] - starts[0]) * 0.8


def test_one_that_cannot_be_started_now_is_tried_again(
    child: Callable[..., Child], tmp_path: Path, until: Until
) -> None:
    part = child("print('up', flush=True)")
    until(part.ended)
    log = tmp_path / "part.log"
    log.unlink()
    log.mkdir()  # nobody can write there, root neither

    def polled() -> Child:
        part.poll()
        return part

    until(lambda: polled().restarts == 2)
    assert part.problem == "Is a directory"
    assert not part.running
    log.rmdir()
    until(lambda: polled().problem == "")
    until(part.ended)
    assert part.reason() == "up"


def test_a_stopped_child_is_not_started_again(child: Callable[..., Child], until: Until) -> None:
    part = child("import time; time.sleep(60)")
    part.stop()
    until(part.stopped)

    part.poll()

    assert not part.running
    assert part.last_exit == -signal.SIGTERM


def test_a_child_that_ignores_its_end_is_killed_with_its_group(
    child: Callable[..., Child], until: Until, lives: Callable[[int], bool]
) -> None:
    part = child(DEAF)
    until(lambda: "deaf" in part.reason())
    part.stop(within_seconds=0.2)
    until(part.stopped)

    assert part.last_exit == -signal.SIGKILL


def test_a_child_that_is_asked_again_hears_it_again(child: Callable[..., Child], until: Until) -> None:
    part = child(DRAINS)
    until(lambda: "up" in part.reason())
    part.stop()
    until(lambda: "draining" in part.reason())
    assert not part.stopped()

    part.stop(within_seconds=20)
    until(part.stopped, seconds=5)
    assert part.last_exit == 3


def test_what_a_dead_child_leaves_in_its_group_goes_with_it(
    child: Callable[..., Child], until: Until, lives: Callable[[int], bool]
) -> None:
    part = child(WITH_A_CHILD)
    until(part.reason)
    grandchild = int(part.reason())
    assert part.pid is not None
    os.kill(part.pid, signal.SIGKILL)
    until(part.ended)

    until(lambda: not lives(grandchild))


def test_a_log_is_readable_by_its_owner_alone(child: Callable[..., Child], tmp_path: Path, until: Until) -> None:
    part = child("print('a key')")
    until(part.ended)

    assert (tmp_path / "part.log").stat().st_mode & 0o777 == 0o600
