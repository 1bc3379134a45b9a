"""What is still there after a power cut: content on the disk, and the name it is found by. Both sides may import it."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have a file's content, or the names in a folder, on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, *pieces: bytes) -> None:
    """Write a file, 0600, that is there whole or not at all, whatever happens to the machine. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a half would take what room there is
        raise
    sync(path.parent)
