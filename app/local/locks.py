"""Locks on folders. A lock belongs to the open file: processes that inherit the descriptor hold it too."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.local.errors import FolderTaken, FolderUnusable
from app.local.guard import KILL_AFTER_SECONDS
from app.os_errors import plainly

UP_LOCK = "up.lock"
PID_SECONDS = 1.0
LEFTOVERS_SECONDS = KILL_AFTER_SECONDS + 4
"""A killed `up` leaves its children to the guard; whoever starts next waits for them this long."""


class Taken(Exception):
    """Somebody else holds the lock; `holder` is what they wrote into it, often their pid."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def take(path: Path, *, wait_seconds: float = 0) -> int:
    """Take the lock and return its descriptor, to be kept open for as long as the lock is wanted.

    Raises Taken when it is not free within `wait_seconds`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + wait_seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        # One that has taken it this moment has not written its pid yet.
        if time.monotonic() >= until + (0 if holder else PID_SECONDS):
            os.close(descriptor)
            raise Taken(holder)
        time.sleep(0.05)


def runs_on(data_dir: Path) -> bool:
    """Whether an `up` holds the data folder now. Makes nothing there."""
    try:
        descriptor = os.open(data_dir / UP_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def claim(data_dir: Path) -> Iterator[int]:
    """Hold the data folder; yields a descriptor that every process of the installation must inherit.

    Two locks, because a live `up` is an error at once, while processes that a killed one left behind are waited for.
    Raises FolderTaken, and FolderUnusable.
    """
    try:
        ours = take(data_dir / UP_LOCK)
    except (FileExistsError, NotADirectoryError, FileNotFoundError, PermissionError) as error:
        raise FolderUnusable(
            f"no data can be kept in {data_dir} ({plainly(error)}): name another folder by --data or GPUYARD_DATA_DIR"
        ) from None
    except Taken as taken:
        raise FolderTaken(f"another gpuyard up (pid {taken.holder}) runs on {data_dir}") from None
    try:
        inherited = take(data_dir / "children.lock", wait_seconds=LEFTOVERS_SECONDS)
    except Taken:
        os.close(ours)
        raise FolderTaken(f"processes of an earlier gpuyard up on {data_dir} have not ended") from None
    try:
        yield inherited
    finally:
        os.close(inherited)
        os.close(ours)
