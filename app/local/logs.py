"""The log of a child that `gpuyard up` watches: bounded in size, and what a start of it has written.

The child writes to the file by itself, so it is not renamed under it: its content is copied away and the file is cut.
What the child writes between the last read and the cut, some microseconds, is lost; nothing else is.
"""

import os
from contextlib import suppress
from pathlib import Path

LOG_BYTES = 10 * 1024 * 1024
KEPT = 3
"""Older logs beside the one that is written: `<name>.log.1` is the newest."""
_PIECE = 1024 * 1024
_REASON = "gpuyard: "


class Log:
    """`path`, which a child appends to."""

    def __init__(self, path: Path, *, most_bytes: int = LOG_BYTES, kept: int = KEPT) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._kept = kept
        self._begins_at = 0
        self._fits_at = 0

    def open(self) -> int:
        """Return a descriptor for a child that starts now."""
        self.bound()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._begins_at = os.fstat(descriptor).st_size
        return descriptor

    def bound(self) -> None:
        """Move the content away when there is too much of it. A full disk keeps it where it is, for a while."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return
        if size < max(self._most_bytes, self._fits_at):
            return
        try:
            self._move_away()
        except OSError:
            with suppress(OSError):
                self._older(0).unlink()
            self._fits_at = size + self._most_bytes
        else:
            self._begins_at = self._fits_at = 0

    def reason(self, lines: int = 15) -> str:
        """What the child that started last has said of its end: its own line for people, else its last lines."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._begins_at)
                said = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        plain = [line.removeprefix(_REASON) for line in said if line.startswith(_REASON)]
        return plain[-1] if plain else "\n".join(said[-lines:])

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _move_away(self) -> None:
        copy = self._older(0)
        with suppress(FileNotFoundError):
            copy.unlink()
        target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(target, "wb", buffering=0) as away, self.path.open("r+b", buffering=0) as log:
            while piece := log.read(_PIECE):
                away.write(piece)
            log.truncate(0)
        for number in range(self._kept, 0, -1):
            with suppress(FileNotFoundError):
                self._older(number - 1).replace(self._older(number))
