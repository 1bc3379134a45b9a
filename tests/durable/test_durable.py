"""A file is there whole or not at all, and its name outlives a power cut as its content does."""

import errno
import os
import stat
from pathlib import Path

import pytest

from app import durable


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Each sync of the disk: whether it was of a folder, and whether the file had its name by then."""
    found: list[tuple[bool, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").resolve()
        found.append((place.is_dir(), place.is_dir() and (place / "file").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_the_content_is_synced_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, synced: list[tuple[bool, bool]]
) -> None:
    durable.write(tmp_path / "file", b"one ", b"two")
    assert (tmp_path / "file").read_bytes() == b"one two"
    assert synced == [(False, False), (True, True)]


def test_it_is_the_owners_alone_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a longer content than the new one")
    durable.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_and_leaves_what_was_there_and_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    durable.write(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        durable.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
