"""Ctrl-C while a command still imports: it ends, and shows nobody where it was."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import Commands

STALL = """
import sys, time

class Stall:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Stall())
"""


@contextmanager
def importing(commands: Commands, module: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Give a command that stays where it imports `module`."""
    folder = commands.home / "first"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(STALL.format(module=module))
    environment = commands.environment()
    environment["PYTHONPATH"] = f"{folder}:{environment['PYTHONPATH']}"
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", *arguments],
        cwd=commands.home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("app.cli.main", ("status",)),
        ("app.cli.submit", ("submit", "in.jsonl")),
        ("app.db.schema", ("serve",)),
        ("app.api.serving", ("serve",)),
        ("app.api.backing_up", ("backup", "to")),
        ("app.worker.agent", ("worker", "--transport", "http")),
        ("celery.bin.celery", ("worker", "--transport", "celery")),
        ("app.worker.bootstep", ("worker", "--transport", "celery")),
    ],
)
def test_ctrl_c_while_it_imports_ends_it_without_a_word(
    tmp_path: Path, module: str, arguments: tuple[str, ...]
) -> None:
    with importing(Commands(tmp_path), module, *arguments) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (130, "", "")


def test_sigterm_while_it_imports_ends_it_without_a_word(tmp_path: Path) -> None:
    with importing(Commands(tmp_path), "app.cli.main", "status") as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (-signal.SIGTERM, "", "")


def test_ctrl_c_that_the_shell_has_ignored_stays_ignored(tmp_path: Path) -> None:
    code = (
        "import os, signal; from app.interrupts import ends_at_once\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with ends_at_once(): os.kill(os.getpid(), signal.SIGINT)\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=Commands(tmp_path).environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    assert done.stdout == "True\n"
