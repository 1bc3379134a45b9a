"""Logs of children: bounded, private, and a reason for the end of the child that wrote last."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from app.local.logs import Log


def content(path: Path) -> str:
    return path.read_text()


def write(log: Log, text: str) -> None:
    with os.fdopen(log.open(), "a") as file:
        file.write(text)


def test_a_log_is_moved_away_in_time_and_so_many_are_kept(tmp_path: Path) -> None:
    log = Log(tmp_path / "api.log", most_bytes=10, kept=2)
    for number in range(5):
        write(log, f"start {number}, more than ten bytes\n")
    log.bound()
    assert content(log.path) == ""
    assert [content(tmp_path / f"api.log.{number}")[:7] for number in (1, 2)] == ["start 4", "start 3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["api.log", "api.log.1", "api.log.2"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_child_that_goes_on_writing_writes_into_the_new_log(tmp_path: Path, until: Callable[..., None]) -> None:
    log = Log(tmp_path / "api.log", most_bytes=1000, kept=1)
    code = "import sys; [print(line, end='', flush=True) for line in sys.stdin]"
    with os.fdopen(log.open(), "ab") as file:
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=file)
    assert child.stdin is not None
    child.stdin.write(b"x" * 2000 + b"\n")
    child.stdin.flush()
    until(lambda: log.path.stat().st_size > 1000)
    log.bound()
    assert log.path.stat().st_size == 0
    child.stdin.write(b"after\n")
    child.stdin.close()
    child.wait()
    assert content(log.path) == "after\n", "from the beginning, with no hole before it"
    assert (tmp_path / "api.log.1").stat().st_size == 2001


def test_a_small_log_is_left(tmp_path: Path) -> None:
    log = Log(tmp_path / "api.log")
    write(log, "small\n")
    log.bound()
    assert [path.name for path in tmp_path.iterdir()] == ["api.log"]


def test_where_it_cannot_be_moved_it_goes_on(tmp_path: Path) -> None:
    """As on a full disk: the log stays whole, and nothing of the copy is left."""
    log = Log(tmp_path / "api.log", most_bytes=10)
    write(log, "more than ten bytes\n")
    copy = tmp_path / "api.log.0"
    copy.mkdir()
    log.bound()
    assert content(log.path) == "more than ten bytes\n"
    copy.rmdir()
    log.bound()
    assert content(log.path) == "more than ten bytes\n", "not tried again before as much has come again"
    write(log, "and ten more\n")
    log.bound()
    assert content(log.path) == ""


def test_the_reason_is_of_the_last_start_and_for_people(tmp_path: Path) -> None:
    log = Log(tmp_path / "api.log")
    write(log, "gpuyard: an old reason\n")
    write(log, "Traceback\n  File x\nValueError: new\n")
    assert log.reason().split("\n")[-1] == "ValueError: new"
    assert "old" not in log.reason()
    write(log, "starting\ngpuyard: the database file is gone\nbye\n")
    assert log.reason() == "the database file is gone"
    assert Log(tmp_path / "none.log").reason() == ""
