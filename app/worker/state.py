"""The worker's state directory: one process at a time, an identity that outlives it, the spool (PROTOCOL 3, R-29)."""

import fcntl
import logging
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from ulid import ULID

from app import durable, private
from app.schemas.workers import MAX_STARTS

_OPAQUE = re.compile(r"[!-~]{1,128}")
_SHORT = 1024
_OURS = ("install_id", "lock", "models", "name", "spool", "starts", "worker_id", ".*.tmp")
log = logging.getLogger(__name__)


class StateDirBusy(Exception):
    """Another worker process lives in this state directory; give each its own."""


class StateDir:
    """Locked from `__init__` to `close`. `install_id` stays, `boot_id` is new for each process, the `starts`-th one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spool_path = path / "spool"
        if closed := private.keep(path, ours=_OURS):
            log.warning("other users could read %s: closed to all but this user", ", ".join(closed))
        self.spool_path.mkdir(mode=0o700, exist_ok=True)
        self._lock = _locked(path / "lock")
        self.install_id = _kept_or_made(path / "install_id")
        self.boot_id = f"boot_{ULID()}"
        self.starts = _counted(path / "starts")

    def close(self) -> None:
        """Let the next process in."""
        self._lock.close()

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the next process in."""
        self.close()


def _locked(path: Path) -> IO[str]:
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "a", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise StateDirBusy(
            f"{path.parent} belongs to a worker that is running. Set GPUYARD_STATE_DIR to another directory."
        ) from error
    return file


def kept(path: Path, form: re.Pattern[str]) -> str | None:
    """Read a word that an earlier process kept. None where there is none, or what a broken disk or a person left."""
    try:
        with path.open("rb") as file:
            found = file.read(_SHORT).decode("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return found if form.fullmatch(found) else None


def _kept_or_made(path: Path) -> str:
    """Read the id, or make one that survives a crash at any moment."""
    if (found := kept(path, _OPAQUE)) is not None:
        return found
    made = f"inst_{secrets.token_hex(16)}"
    durable.write(path, made.encode())
    return made


def _counted(path: Path) -> int:
    """Count this start. A full disk keeps nobody from starting: its spool is to be sent."""
    try:
        number = min(1 + max(0, int(path.read_text(encoding="ascii"))), MAX_STARTS)
    except (OSError, ValueError):
        number = 1
    with suppress(OSError):
        durable.write(path, str(number).encode())
    return number
