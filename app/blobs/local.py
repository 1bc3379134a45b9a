"""Blobs as files of a local or shared directory: `<root>/ab/cd/<key>`, unfinished ones in `<root>/unfinished`.

`<root>/store.id` is the marker.
"""

import errno
import hashlib
import io
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from app import durable
from app.blobs.patience import Patience
from app.blobs.sections import Section
from app.blobs.store import (
    BlobFull,
    BlobMissing,
    BlobUnavailable,
    ForeignStore,
    Stored,
    checked_key,
    is_key,
    new_key,
)
from app.checksums import BlockSums

MARKER = "store.id"
_READ_BYTES = 1024 * 1024
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_OF_ONE_FILE = {errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
"""Errors of a file that say nothing of the store, while its marker can be read: a bad sector."""


class LocalBlobs:
    """A `BlobStore` in the directory `root`, which is made at the first write. Only their owner can read the files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unfinished = root / "unfinished"
        self._marker = root / MARKER
        self._expected: str | None = None
        self._probing = Patience(self._write_and_delete)
        self._free_bytes = Patience(self._disk_free)
        self._marking = Patience(self._read_marker)

    def identity(self) -> str | None:
        """Read the marker. A start asks for it, which must not hang with the store."""
        return self._marking.ask()

    def _read_marker(self) -> str | None:
        try:
            return self._marker.read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BlobUnavailable(f"the marker of the store cannot be read: {error.strerror or error}") from error

    def mark(self, store_id: str) -> None:
        """Write the marker. Of two processes that write the same one at the same moment either may come first."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            durable.write(self._marker, f"{store_id}\n".encode("ascii"))
        except OSError as error:
            if self.identity() != store_id:
                raise BlobUnavailable(
                    f"the marker of the store cannot be written: {error.strerror or error}"
                ) from error

    def expect(self, store_id: str) -> None:
        """Look at the marker from now on before a content is written, and before one is said to be missing."""
        self._expected = store_id

    def all_keys(self) -> Iterator[str]:
        """Name the contents; other files in the folders, such as what a copying program left there, are none."""
        return (path.name for path in self.root.glob("??/??/*") if is_key(path.name))

    def writer(self, key: str) -> "LocalBlobWriter":
        """Begin a blob that arrives in pieces."""
        path = self._path(key)
        self._check_marker()
        with _os_errors(key, writing=True):
            self._unfinished.mkdir(parents=True, exist_ok=True, mode=0o700)
            return LocalBlobWriter(key, self._unfinished / f"{key}.{secrets.token_hex(4)}", path)

    def put(self, key: str, chunks: Iterable[bytes]) -> Stored:
        """Write a whole blob from its pieces, one in memory at a time."""
        with self.writer(key) as writer:
            for chunk in chunks:
                writer.write(chunk)
            return writer.commit()

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Open a range of a blob; the file stays readable when the blob is deleted meanwhile."""
        with self._reading(key):
            file = self._path(key).open("rb", buffering=0)
            try:
                length = os.fstat(file.fileno()).st_size
                last = length if end is None else min(end, length)
                section = Section(file, start, last, partial(self._reading, key))
                return cast("BinaryIO", io.BufferedReader(section, _READ_BYTES))
            except BaseException:
                file.close()
                raise

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Give a range of a blob at once, by one read of the file where a stream would take many."""
        with self._reading(key), self._path(key).open("rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            left = max(0, (length if end is None else min(end, length)) - start)
            file.seek(start)
            pieces = []
            while left and (piece := file.read(left)):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)

    def size(self, key: str) -> int:
        """Count the bytes of a blob."""
        with self._reading(key):
            return self._path(key).stat().st_size

    def exists(self, key: str) -> bool:
        """Tell whether the blob is there."""
        with suppress(BlobMissing):
            self.size(key)
            return True
        return False

    def delete(self, key: str) -> None:
        """Remove a blob, if there."""
        with suppress(BlobMissing), self._missing_or_away(key):
            self._path(key).unlink()

    def collect_leftovers(self, older_than_seconds: float) -> int:
        """Remove unfinished writes by the age of their last write: what a killed process left behind."""
        # The files' own times are compared, which no transaction sees: the one place where the host's clock will do.
        before = time.time() - older_than_seconds
        count = 0
        self._check_marker()
        with _os_errors("unfinished"):
            for path in self._unfinished.iterdir() if self._unfinished.exists() else ():
                with suppress(FileNotFoundError):  # its writer was quicker
                    if path.stat().st_mtime < before:
                        path.unlink()
                        count += 1
        return count

    def free_bytes(self) -> int | None:
        """Ask the disk that holds the directory, or will."""
        with suppress(BlobUnavailable):
            return self._free_bytes.ask()
        return None

    def probe(self) -> None:
        """Write and delete; of several callers at once one does."""
        self._probing.ask()

    def _write_and_delete(self) -> None:
        key = new_key()
        self.put(key, [b"ready?"])
        self.delete(key)

    def _disk_free(self) -> int | None:
        there = next((path for path in (self.root, *self.root.parents) if path.exists()), self.root)
        try:
            return shutil.disk_usage(there).free
        except OSError:
            return None

    def _check_marker(self) -> None:
        if self._expected is None:
            return
        found = self._read_marker()
        if found is None:
            raise BlobUnavailable(f"the store has no {MARKER}: its disk is not mounted, or its folder was moved away")
        if found != self._expected:
            raise ForeignStore(f"the store that is there is another installation's: its {MARKER} is not the database's")

    @contextmanager
    def _missing_or_away(self, key: str) -> Iterator[None]:
        """Look at the marker where a file is not found."""
        try:
            with _os_errors(key):
                yield
        except BlobMissing:
            self._check_marker()
            raise

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Look at the marker, too, where a file is there and cannot be read."""
        try:
            with self._missing_or_away(key):
                yield
        except BlobUnavailable as error:
            cause = error.__cause__
            if self._expected is None or not isinstance(cause, OSError) or cause.errno not in _OF_ONE_FILE:
                raise
            self._check_marker()
            raise BlobMissing(str(error), f"it cannot be read: {cause.strerror}") from error

    def _path(self, key: str) -> Path:
        return self.root / checked_key(key)[:2] / key[2:4] / key


class LocalBlobWriter:
    """A `BlobWriter` over a file beside the store, renamed into it at the end."""

    def __init__(self, key: str, unfinished: Path, path: Path) -> None:
        self._key = key
        self._unfinished = unfinished
        self._path = path
        self._digest = hashlib.sha256()
        self._sums = BlockSums()
        self._bytes = 0
        self._file = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def write(self, chunk: bytes) -> None:
        """Append and hash."""
        with _os_errors(self._key, writing=True):
            self._file.write(chunk)
        self._digest.update(chunk)
        self._sums.add(chunk)
        self._bytes += len(chunk)

    def commit(self) -> Stored:
        """Sync the content, then give it its name, then sync the name: after a power cut it is whole or not there."""
        with _os_errors(self._key, writing=True):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._unfinished.replace(self._path)
            for folder in (self._path.parent, self._path.parent.parent, self._path.parent.parent.parent):
                durable.sync(folder)
        return Stored(self._bytes, self._digest.hexdigest(), self._sums.text())

    def abort(self) -> None:
        """Drop the file unless it was committed. Never raises: what cannot be removed now is a leftover."""
        with suppress(OSError):
            self._file.close()  # a full disk fails here again, flushing its buffer
        with suppress(OSError):
            self._unfinished.unlink()

    def __enter__(self) -> Self:
        """Give the writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Abort what was not committed."""
        self.abort()


@contextmanager
def _os_errors(key: str, *, writing: bool = False) -> Iterator[None]:
    """Tell what is missing from what cannot be done now; the path stays out of what users may see."""
    try:
        yield
    except FileNotFoundError as error:
        if writing:
            raise BlobUnavailable(f"blob {key}: its unfinished file is gone") from error
        raise BlobMissing(f"there is no blob {key}") from error
    except OSError as error:
        kind = BlobFull if error.errno in _NO_ROOM else BlobUnavailable
        raise kind(f"blob {key}: {error.strerror or error}") from error
