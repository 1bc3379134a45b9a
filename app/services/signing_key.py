"""The key that webhook secrets are derived from: a file of the data folder, which API and control workers share.

The database holds no secret, so a copy of it signs nothing. Without the file every secret has to be rotated.
"""

import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path

from app import durable

KEY_BYTES = 32


@cache
def read(path: Path) -> bytes:
    """Read the key. Raises OSError when there is none that can be read."""
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(f"{path} is no signing key: it has {len(key)} bytes")
    return key


def read_or_make(path: Path) -> bytes:
    """Read the key, and make it when it was never there. Two at once make one."""
    if not path.exists():
        _make(path)
    return read(path)


def _make(path: Path) -> None:
    """Write the whole key under another name first: nobody ever reads a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, secrets.token_bytes(KEY_BYTES))
        os.fsync(file)
    finally:
        os.close(file)
    with suppress(FileExistsError):
        path.hardlink_to(part)
    part.unlink()
    durable.sync(path.parent)  # secrets that users keep are derived from it: it must not be gone after a power cut
