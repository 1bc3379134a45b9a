"""A control worker's place in its data directory: who was killed and comes back is the same worker (PROTOCOL 3).

Its hello then ends what its earlier process held, and nobody waits for the toleration. A lock file a place; the kernel
lets go of it when the process ends, however it ends.
"""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MOST = 256


class Place:
    """The first free place of a folder, held as long as the process lives. `name` and `install_id` stay with it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(1, MOST + 1):
            path = folder / f"{number}"
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.name = f"control-{socket.gethostname()}-{number}"
                self.install_id = self._kept()
                return
            os.close(self._file)
        raise OSError(f"{MOST} control workers use {folder} already")

    def close(self) -> None:
        """Leave the place."""
        os.close(self._file)

    def _kept(self) -> str:
        kept = os.pread(self._file, 64, 0).decode("ascii", "replace")
        if len(kept) == len(uuid4().hex):
            return kept
        fresh = uuid4().hex
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, fresh.encode("ascii"), 0)
        os.fsync(self._file)
        return fresh
