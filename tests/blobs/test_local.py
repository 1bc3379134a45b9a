"""Blobs on a real disk: whole or not there, hashed on the way, private, and honest about what went wrong."""

import errno
import hashlib
import io
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.blobs.local import MARKER, LocalBlobs
from app.blobs.sections import Section
from app.blobs.store import BlobMissing, BlobStore, BlobUnavailable, Stored, new_key
from app.checksums import BLOCK_BYTES, checksum

KEY = "0123456789abcdef" * 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "blobs"


@pytest.fixture
def blobs(root: Path) -> LocalBlobs:
    return LocalBlobs(root)


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_what_is_put_is_read_and_its_hash_is_told(blobs: BlobStore) -> None:
    content = os.urandom(3_000_000)
    stored = blobs.put(KEY, (content[i : i + 70_000] for i in range(0, len(content), 70_000)))
    blocks = (content[i : i + BLOCK_BYTES] for i in range(0, len(content), BLOCK_BYTES))
    assert stored == Stored(len(content), hashlib.sha256(content).hexdigest(), "".join(map(checksum, blocks)))
    assert blobs.read(KEY) == content
    assert blobs.size(KEY) == len(content)
    assert blobs.exists(KEY)


def test_an_empty_blob_is_a_blob(blobs: BlobStore) -> None:
    assert blobs.put(KEY, []) == Stored(0, hashlib.sha256().hexdigest(), "")
    assert blobs.read(KEY) == b""


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, b"0123456789"), (3, 5, b"34"), (3, 3, b""), (8, 99, b"89"), (99, None, b""), (5, 2, b"")],
)
def test_a_range_is_read_and_no_byte_beyond_it(blobs: BlobStore, start: int, end: int | None, expected: bytes) -> None:
    blobs.put(KEY, [b"0123456789"])
    assert blobs.read(KEY, start, end) == expected
    with blobs.open(KEY, start, end) as file:
        assert file.read(1) + file.read() == expected


def test_a_range_can_be_read_line_by_line(blobs: BlobStore) -> None:
    blobs.put(KEY, [b"a\nb\nc\n"])
    with blobs.open(KEY, 2, 5) as file:
        assert list(file) == [b"b\n", b"c"]


def test_a_blob_is_private_and_spread_over_folders(blobs: BlobStore, root: Path) -> None:
    blobs.put(KEY, [b"x"])
    (path,) = files_of(root)
    assert path == root / "01" / "23" / KEY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nobody_sees_a_blob_before_it_is_committed(blobs: BlobStore, root: Path) -> None:
    with blobs.writer(KEY) as writer:
        writer.write(b"x" * 100_000)
        assert not blobs.exists(KEY)
        (path,) = files_of(root)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert writer.commit().bytes == 100_000
    assert blobs.read(KEY) == b"x" * 100_000


def test_a_write_that_is_left_leaves_nothing(blobs: BlobStore, root: Path) -> None:
    def broken_upload() -> None:
        with blobs.writer(KEY) as writer:
            writer.write(b"x")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        broken_upload()
    assert not blobs.exists(KEY)
    assert files_of(root) == []


def test_an_abort_after_the_commit_takes_nothing_back(blobs: BlobStore) -> None:
    with blobs.writer(KEY) as writer:
        writer.write(b"x")
        writer.commit()
        writer.abort()
    assert blobs.read(KEY) == b"x"


def test_a_second_put_replaces_the_first_as_a_whole(blobs: BlobStore) -> None:
    blobs.put(KEY, [b"long first content"])
    with blobs.open(KEY) as old:
        blobs.put(KEY, [b"second"])
        assert old.read() == b"long first content"
    assert blobs.read(KEY) == b"second"


def test_a_deleted_blob_is_missing_and_may_be_deleted_again(blobs: BlobStore) -> None:
    blobs.put(KEY, [b"x"])
    blobs.delete(KEY)
    blobs.delete(KEY)
    assert not blobs.exists(KEY)
    for look in (blobs.read, blobs.open, blobs.size):
        with pytest.raises(BlobMissing):
            look(KEY)


@pytest.mark.parametrize("key", ["", "../../etc", "A" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "0" * 31 + "/"])
def test_a_string_that_is_no_key_never_becomes_a_path(blobs: BlobStore, root: Path, key: str) -> None:
    for act in (blobs.read, blobs.open, blobs.size, blobs.exists, blobs.delete, blobs.writer):
        with pytest.raises(ValueError, match="not a blob's key"):
            act(key)
    assert not root.exists()


def test_new_keys_are_keys_and_never_the_same(blobs: BlobStore) -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert not any(blobs.exists(key) for key in keys)


def test_a_full_disk_is_told_and_leaves_nothing(blobs: BlobStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BlobUnavailable, match="No space left"):
        blobs.put(KEY, [b"x"])
    assert files_of(root) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_device_that_is_full_fails_the_write_itself(blobs: BlobStore) -> None:
    with blobs.writer(KEY) as writer:
        descriptor = os.open("/dev/full", os.O_WRONLY)
        os.dup2(descriptor, writer._file.fileno())  # type: ignore[attr-defined]
        os.close(descriptor)
        with pytest.raises(BlobUnavailable, match="No space left"):
            writer.write(b"x" * 10_000_000)
    assert not blobs.exists(KEY)


def test_a_folder_that_cannot_be_made_is_unavailable_and_not_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    blobs = LocalBlobs(tmp_path / "file")
    with pytest.raises(BlobUnavailable):
        blobs.put(KEY, [b"x"])
    with pytest.raises(BlobUnavailable):
        blobs.read(KEY)


@pytest.mark.parametrize("way", ["folder", "loop", "its folder is a file"])
def test_what_cannot_be_read_is_missing_where_the_store_is_there_and_else_the_store_is_away(
    blobs: LocalBlobs, root: Path, way: str
) -> None:
    blobs.mark("a")
    blobs.expect("a")
    path = root / "01" / "23" / KEY
    path.parent.mkdir(parents=True)
    if way == "folder":
        path.mkdir()
    elif way == "loop":
        path.symlink_to(path)
    else:
        path.parent.rmdir()
        path.parent.write_bytes(b"")
    reads = (lambda: blobs.read(KEY), lambda: blobs.open(KEY))
    for read in reads:
        with pytest.raises(BlobMissing) as found:
            read()
        assert found.value.what.startswith("it cannot be read: ")
    (root / MARKER).unlink()
    for read in reads:
        with pytest.raises(BlobUnavailable):
            read()


class BadDisk(io.FileIO):
    """Reads nothing, as on a bad sector."""

    def readinto(self, _buffer: object, /) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_disk_that_cannot_read_on_is_said_as_one_that_cannot_begin(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "x").write_bytes(b"abc")

    @contextmanager
    def errors() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BlobMissing("no") from error

    with Section(BadDisk(root / "x"), 0, 2, errors) as section, pytest.raises(BlobMissing):
        section.read()


def test_a_write_whose_file_was_taken_away_is_unavailable(blobs: BlobStore, root: Path) -> None:
    with blobs.writer(KEY) as writer:
        writer.write(b"x")
        (path,) = files_of(root)
        path.unlink()
        with pytest.raises(BlobUnavailable):
            writer.commit()


def test_leftovers_are_collected_by_age_and_blobs_are_not(blobs: BlobStore, root: Path) -> None:
    assert blobs.collect_leftovers(0) == 0
    blobs.put(KEY, [b"x"])
    old, young = blobs.writer(new_key()), blobs.writer(new_key())
    try:
        (path,) = [p for p in files_of(root) if p.name.startswith(old._key)]  # type: ignore[attr-defined]
        an_hour_ago = time.time() - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))
        assert blobs.collect_leftovers(600) == 1
        assert not path.exists()
        assert young.commit() == Stored(0, hashlib.sha256().hexdigest(), "")
        assert blobs.exists(KEY)
    finally:
        old.abort()
        young.abort()


def test_closing_a_range_closes_its_file(blobs: BlobStore, root: Path) -> None:
    blobs.put(KEY, [b"abc"])
    below = (root / "01" / "23" / KEY).open("rb", buffering=0)
    with Section(below, 0, 2, nullcontext) as section:
        assert section.read() == b"ab"
    assert below.closed


@given(content=st.binary(max_size=300), start=st.integers(0, 400), length=st.integers(0, 400), step=st.integers(1, 50))
def test_any_range_read_in_any_steps_is_that_slice(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, start: int, length: int, step: int
) -> None:
    blobs = LocalBlobs(tmp_path_factory.getbasetemp() / "ranges")
    blobs.put(KEY, [content])
    with blobs.open(KEY, start, start + length) as file:
        assert b"".join(iter(lambda: file.read(step), b"")) == content[start : start + length]
