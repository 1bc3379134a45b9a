"""Contents on a file system whose server may go away: each call then blocks in the kernel, until the server is back."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.blobs.local import LocalBlobs


class HangingBlobs(LocalBlobs):
    """A pipe that nobody writes into hangs as a file of a dead mount does. `hanging` counts the calls that do."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._pipe = root.with_name(f"{root.name}-server-is-away")
        self._lock = threading.Lock()
        self.hanging = 0

    def go_away(self) -> None:
        os.mkfifo(self._pipe)

    def come_back(self) -> None:
        gone = self._pipe.rename(self._pipe.with_suffix(".back"))
        with suppress(OSError):  # nobody waits
            os.close(os.open(gone, os.O_WRONLY | os.O_NONBLOCK))
        gone.unlink()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Be away until the end of the block."""
        self.go_away()
        try:
            yield
        finally:
            self.come_back()

    def collect_leftovers(self, older_than_seconds: float) -> int:
        self._wait()
        return super().collect_leftovers(older_than_seconds)

    def _path(self, key: str) -> Path:
        self._wait()
        return super()._path(key)

    def _disk_free(self) -> int | None:
        self._wait()
        return super()._disk_free()

    def _wait(self) -> None:
        self._count(1)
        try:
            with suppress(FileNotFoundError):
                self._pipe.read_bytes()
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        with self._lock:
            self.hanging += step
