"""Blobs as files of a local or shared directory: `<root>/ab/cd/<key>`, unfinished ones in `<root>/unfinished`."""

import errno
import hashlib
import io
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from app import durable
from app.blobs.sections import Section
from app.blobs.store import BlobFull, BlobMissing, BlobUnavailable, Stored, checked_key

_READ_BYTES = 1024 * 1024
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class LocalBlobs:
    """A `BlobStore` in the directory `root`, which is made at the first write. Only their owner can read the files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unfinished = root / "unfinished"

    def writer(self, key: str) -> "LocalBlobWriter":
        """Begin a blob that arrives in pieces."""
        path = self._path(key)
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
        with _os_errors(key):
            file = self._path(key).open("rb", buffering=0)
            try:
                length = os.fstat(file.fileno()).st_size
                section = Section(file, start, length if end is None else min(end, length))
                return cast("BinaryIO", io.BufferedReader(section, _READ_BYTES))
            except BaseException:
                file.close()
                raise

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Give a range of a blob at once, by one read of the file where a stream would take many."""
        with _os_errors(key), self._path(key).open("rb", buffering=0) as file:
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
        with _os_errors(key):
            return self._path(key).stat().st_size

    def exists(self, key: str) -> bool:
        """Tell whether the blob is there."""
        with suppress(BlobMissing):
            self.size(key)
            return True
        return False

    def delete(self, key: str) -> None:
        """Remove a blob, if there."""
        with suppress(BlobMissing), _os_errors(key):
            self._path(key).unlink()

    def collect_leftovers(self, older_than_seconds: float) -> int:
        """Remove unfinished writes by the age of their last write: what a killed process left behind."""
        # The files' own times are compared, which no transaction sees: the one place where the host's clock will do.
        before = time.time() - older_than_seconds
        count = 0
        with _os_errors("unfinished"):
            for path in self._unfinished.iterdir() if self._unfinished.exists() else ():
                with suppress(FileNotFoundError):  # its writer was quicker
                    if path.stat().st_mtime < before:
                        path.unlink()
                        count += 1
        return count

    def free_bytes(self) -> int | None:
        """Ask the disk that holds the directory, or will."""
        there = next((path for path in (self._root, *self._root.parents) if path.exists()), self._root)
        try:
            return shutil.disk_usage(there).free
        except OSError:
            return None

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)[:2] / key[2:4] / key


class LocalBlobWriter:
    """A `BlobWriter` over a file beside the store, renamed into it at the end."""

    def __init__(self, key: str, unfinished: Path, path: Path) -> None:
        self._key = key
        self._unfinished = unfinished
        self._path = path
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._file = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def write(self, chunk: bytes) -> None:
        """Append and hash."""
        with _os_errors(self._key, writing=True):
            self._file.write(chunk)
        self._digest.update(chunk)
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
        return Stored(self._bytes, self._digest.hexdigest())

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
