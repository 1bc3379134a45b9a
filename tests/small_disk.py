"""A real disk of a few megabytes, which a test fills and empties: a tmpfs of its own, which takes root to mount."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = bytes(4096)


class SmallDisk:
    """What is mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while file.write(PAGE):
                    pass
            except OSError:
                return

    def make_room(self) -> None:
        """Take away what filled it."""
        self._filler.unlink()


@contextmanager
def small_disk(mebibytes: int, *, owner: int | None = None) -> Iterator[SmallDisk]:
    """Mount one until the end of the block; where that may not be done, the test is skipped."""
    with tempfile.TemporaryDirectory(prefix="gpuyard-disk-") as folder:
        options = f"size={mebibytes}m,mode=755,uid={os.geteuid() if owner is None else owner}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"a disk of the test's own takes the right to mount one (root): {mounted.stderr.strip()}")
        try:
            yield SmallDisk(Path(folder))
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
