"""One supervised process: started, watched, started again with a growing pause, and stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.local.guard import Guard, signal_group
from app.local.logs import Log

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 60.0
"""A child that has lived this long starts its pauses anew."""


@dataclass(frozen=True)
class Part:
    """What is to run. `stop_seconds` is how long it may take to end by itself after SIGTERM."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False, default_factory=dict)
    stop_seconds: float = 10.0
    inherit: tuple[int, ...] = ()


class Child:
    """A part and the process it is at the moment. Driven by its owner's loop: nothing here waits."""

    def __init__(self, part: Part, *, guard: Guard, logs: Path, cwd: Path) -> None:
        self.part = part
        self.restarts = 0
        self.last_exit: int | None = None
        self.problem = ""
        """Why it cannot be started now."""
        self._guard = guard
        self._log = Log(logs / f"{part.name}.log")
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._start_at = 0.0
        self._kill_at: float | None = None

    @property
    def pid(self) -> int | None:
        """The process, or None while none runs."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether a process runs, as far as the last `poll` saw."""
        return self._process is not None

    def start(self) -> None:
        """Start a process; its output is added to `<name>.log`."""
        with os.fdopen(self._log.open(), "ab") as log:
            self._process = self._guard.spawn(
                self.part.argv, env=self.part.env, log=log, cwd=self._cwd, inherit=self.part.inherit
            )
        self._started_at = time.monotonic()

    def poll(self) -> None:
        """See whether it still runs; when it does not, start it again after its pause. Its log is kept bounded."""
        self._reap()
        self._log.bound()
        if self._process is None and self._kill_at is None and time.monotonic() >= self._start_at:
            self.restarts += 1
            try:
                self.start()
            except OSError as error:  # no process, no memory, no folder for its log: the other parts go on meanwhile
                self.problem = error.strerror or str(error)
                self._pause_again()
            else:
                self.problem = ""

    def ended(self) -> bool:
        """Whether no process runs now; nothing is started."""
        self._reap()
        return self._process is None

    def stop(self, *, within_seconds: float | None = None) -> None:
        """Ask it to end; `stopped` kills its group when it did not in time. Asked again, it is to hurry."""
        seconds = self.part.stop_seconds if within_seconds is None else within_seconds
        self._kill_at = time.monotonic() + seconds
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stopped(self) -> bool:
        """Whether it has ended after `stop`, with all of its group."""
        self._reap()
        if self._process is not None and self._kill_at is not None and time.monotonic() >= self._kill_at:
            signal_group(self._process.pid, signal.SIGKILL)
        return self._process is None

    def reason(self) -> str:
        """What it said of its end."""
        return self._log.reason()

    def _reap(self) -> None:
        if self._process is None or self._process.poll() is None:
            return
        # What it left in its group has no owner any more, and would keep the restarted one from its port or folder.
        signal_group(self._process.pid, signal.SIGKILL)
        self._guard.ended(self._process.pid)
        self.last_exit = self._process.returncode
        self._process = None
        if time.monotonic() - self._started_at >= HEALTHY_AFTER_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        self._pause_again()

    def _pause_again(self) -> None:
        self._start_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
