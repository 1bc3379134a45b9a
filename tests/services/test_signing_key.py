"""The key of webhook secrets: one file, whole, for its owner only."""

import os
import stat
import threading
from pathlib import Path

import pytest

from app.services import signing_key


def test_two_that_make_it_at_once_have_one_key(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "webhooks.key"
    gate = threading.Barrier(8)
    found: list[bytes] = []

    def make() -> None:
        gate.wait()
        found.append(signing_key.read_or_make(path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found[0]) == signing_key.KEY_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["webhooks.key"]


def test_who_comes_second_takes_the_key_that_is_there(tmp_path: Path) -> None:
    """Another process has made it between the look and the write."""
    path = tmp_path / "webhooks.key"
    signing_key._make(path)
    first = path.read_bytes()
    signing_key._make(path)
    assert path.read_bytes() == first


def test_a_key_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "webhooks.key"
    path.write_bytes(b"short")
    with pytest.raises(OSError, match="no signing key"):
        signing_key.read_or_make(path)


def test_its_name_is_on_the_disk_too_for_secrets_are_derived_from_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def fsync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").resolve()
        if place.is_dir():
            folders.append(place)

    monkeypatch.setattr(os, "fsync", fsync)
    signing_key.read_or_make(tmp_path / "webhooks.key")
    assert folders == [tmp_path]
