"""Leaves nothing behind: a small process that ends our children when we are gone, `kill -9` included.

It reads a pipe whose other end only we (and, for a moment, a child before its exec) hold. Each child announces itself
on that pipe *before* it becomes its program, so there is no moment in which a child lives and the guard does not know:

    started <pid>     by the child, already leader of its own session and group
    ended <pid>       by us, after we have waited for it: the number may belong to somebody else from now on

At the end of the pipe every group still known gets SIGTERM, and SIGKILL two seconds before the ten that
the issue allows. The guard runs this file alone: standard library only.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

KILL_AFTER_SECONDS = 8.0
"""From our end to SIGKILL of what did not obey SIGTERM."""

# Run by a bare interpreter (15 ms): `sh` could not do it, dash redirects to one-digit descriptors only.
_ANNOUNCE = (
    "import os,sys;g=int(sys.argv[1]);os.write(g,b'started %d\\n'%os.getpid());os.close(g);"
    "os.execvpe(sys.argv[2],sys.argv[2:],os.environ)"
)


class Guard:
    """Our end of the pipe. Not for use from several threads."""

    def __init__(self) -> None:
        self._living: set[int] = set()
        self._pipe = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], log: IO[bytes], cwd: Path, inherit: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a child in a session of its own, with its output in `log` and the descriptors `inherit` open."""
        self.check()
        child = subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, "-I", "-S", "-c", _ANNOUNCE, str(self._pipe), *argv],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(self._pipe, *inherit),
        )
        self._living.add(child.pid)
        return child

    def ended(self, pid: int) -> None:
        """The child was waited for."""
        self._living.discard(pid)
        self._tell(f"ended {pid}\n")

    def check(self) -> None:
        """Start another guard when somebody has ended it."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()

    def close(self) -> None:
        """Let the guard go, and wait for it: it ends what still lives."""
        os.close(self._pipe)
        if self._process is not None:
            self._process.wait()

    def _start(self) -> None:
        reading, self._pipe = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-I", "-S", __file__, str(reading)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(reading,),
        )
        os.close(reading)
        for pid in self._living:
            self._tell(f"started {pid}\n")

    def _tell(self, line: str) -> None:
        with suppress(OSError):  # it ended a moment ago: `check` starts another, which learns all that live
            os.write(self._pipe, line.encode())


def signal_group(pid: int, number: int) -> bool:
    """Signal the group led by `pid`; False when nothing of it is left."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_groups(pids: set[int], *, kill_after_seconds: float) -> None:
    """SIGTERM to each group, SIGKILL to what is left in the end; returns when all are gone or were killed."""
    until = time.monotonic() + kill_after_seconds
    left = {pid for pid in pids if signal_group(pid, signal.SIGTERM)}
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = {pid for pid in left if signal_group(pid, 0)}
    for pid in left:
        signal_group(pid, signal.SIGKILL)


def watch(descriptor: int) -> set[int]:
    """Read until the pipe ends and return the groups that live then."""
    living: set[int] = set()
    with os.fdopen(descriptor, "rb") as pipe:
        for line in pipe:
            word, _, pid = line.partition(b" ")
            (living.add if word == b"started" else living.discard)(int(pid))
    return living


def main() -> None:
    """Be the guard."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_groups(watch(int(sys.argv[1])), kill_after_seconds=KILL_AFTER_SECONDS)


if __name__ == "__main__":
    main()
