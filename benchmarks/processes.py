"""What processes use: CPU by process, and the most memory since it was last asked."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

KIB_IN_MIB = 1024
_RESET_PEAK = "5"  # proc(5), clear_refs: the peak starts again from what is resident now


@dataclass(frozen=True)
class Usage:
    """CPU seconds (user and system) by name."""

    seconds: dict[str, float]

    @classmethod
    def of(cls, pids: Mapping[str, int]) -> Self:
        """Read them now."""
        found = {}
        for name, pid in pids.items():
            times = psutil.Process(pid).cpu_times()
            found[name] = times.user + times.system
        return cls(found)

    def __sub__(self, before: "Usage") -> "Usage":
        """Give what was used since."""
        return Usage({name: value - before.seconds[name] for name, value in self.seconds.items()})


def reset_peaks(pids: Mapping[str, int]) -> None:
    """Let peaks start from now. A system that does not let us shows those since the process began."""
    for pid in pids.values():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def peaks_mib(pids: Mapping[str, int]) -> dict[str, float]:
    """Give the most memory that was resident, by name."""
    return {name: _status(pid, "VmHWM") / KIB_IN_MIB for name, pid in pids.items()}


def _status(pid: int, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if not found:
        raise RuntimeError(f"/proc/{pid}/status has no {field}")
    return int(found[1])
