"""Memory and open files of every process of a run, from when it had settled to its last moment."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

EVERY_SECONDS = 2.0
SETTLED_SECONDS = 10.0
"""A process that is younger still imports and opens."""
MIB = 1024 * 1024


@dataclass
class Use:
    """One process: `first` when it had settled, `last` when it was seen last."""

    name: str
    first_mib: float
    first_files: int
    last_mib: float
    last_files: int


class Resources:
    """Looks at most every two seconds."""

    def __init__(self) -> None:
        self.of: dict[int, Use] = {}
        self._looked_at = 0.0

    def look(self, pids: dict[str, int]) -> None:
        """Note what these processes use now."""
        if time.monotonic() - self._looked_at < EVERY_SECONDS:
            return
        self._looked_at = time.monotonic()
        for name, pid in pids.items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if time.time() - process.create_time() < SETTLED_SECONDS:
                    continue
                mib, files = process.memory_info().rss / MIB, process.num_fds()
                use = self.of.setdefault(pid, Use(name, mib, files, mib, files))
                use.last_mib, use.last_files = mib, files

    def most_files(self) -> tuple[int, str]:
        """The most open files that any process has gained, and which it was."""
        return max(((use.last_files - use.first_files, use.name) for use in self.of.values()), default=(0, "none"))

    def most_mib(self) -> tuple[float, str]:
        """The same of memory, in MiB."""
        return max(((use.last_mib - use.first_mib, use.name) for use in self.of.values()), default=(0.0, "none"))


def left_over(folder: Path) -> list[str]:
    """The processes that still run with this folder in their environment or on their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == psutil.Process().pid:
                continue
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(folder) in word for word in words):
                found.append(f"{process.pid}: {' '.join(process.cmdline())}")
    return found
