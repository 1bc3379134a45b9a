"""What a blob store does, whatever keeps the bytes (PROTOCOL 8; DESIGN 5: row bodies never enter SQL).

BlobError
├── BlobMissing      no such blob: the caller's record is wrong, trying again does not help
├── BlobDamaged      the bytes are not those that were written: they must not be used
└── BlobUnavailable  disk gone, no permission: try later
    └── BlobFull     no room: nothing can be written, all else works
"""

import re
import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

_KEY = re.compile(r"[0-9a-f]{32}")


class BlobError(Exception):
    """A blob could not be read or written."""


class BlobMissing(BlobError):
    """There is no blob of that key."""


class BlobDamaged(BlobError):
    """The content does not match the checksum that was taken when it was written."""


class BlobUnavailable(BlobError):
    """The store cannot do it now: full, unreachable, not permitted."""


class BlobFull(BlobUnavailable):
    """There is no room for what was to be written. What is there can be read."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a finished write holds: the count of bytes, and their SHA-256 in hex."""

    bytes: int
    sha256: str


class BlobWriter(AbstractContextManager["BlobWriter"], Protocol):
    """A blob that is being written. Nobody sees it before `commit`; leaving the context without one aborts it."""

    def write(self, chunk: bytes) -> None:
        """Append. Raises BlobUnavailable."""

    def commit(self) -> Stored:
        """Make the blob durable and visible. Raises BlobUnavailable; the blob then does not exist."""

    def abort(self) -> None:
        """Forget what was written. Harmless after a commit."""


class BlobStore(Protocol):
    """A store of immutable contents under random keys (`new_key`).

    All methods raise ValueError for a string that is no key, and BlobUnavailable when the store cannot do it now.
    """

    def writer(self, key: str) -> BlobWriter:
        """Begin a blob that arrives in pieces, such as an upload."""

    def put(self, key: str, chunks: Iterable[bytes]) -> Stored:
        """Write a whole blob. A second put of one key replaces the first, never mixes with it."""

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Open the bytes `start` to `end` (exclusive) for reading; the caller closes it. Raises BlobMissing."""

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Give the bytes from `start` to `end`. Raises BlobMissing."""

    def size(self, key: str) -> int:
        """Count the bytes. Raises BlobMissing."""

    def exists(self, key: str) -> bool:
        """Tell whether the blob is there."""

    def delete(self, key: str) -> None:
        """Remove the blob; nothing happens when there is none."""

    def collect_leftovers(self, older_than_seconds: float) -> int:
        """Remove unfinished writes that nobody has touched for so long; gives their count."""

    def free_bytes(self) -> int | None:
        """Say how much more there is room for; None where nobody can say."""


def new_key() -> str:
    """Make a key that nobody can guess and that says nothing about its content."""
    return secrets.token_hex(16)


def is_key(text: str) -> bool:
    """Tell whether `text` is a blob's key."""
    return _KEY.fullmatch(text) is not None


def checked_key(key: str) -> str:
    """Give `key` back when it is one, so that no other string becomes part of a path. Raises ValueError."""
    if not is_key(key):
        raise ValueError(f"not a blob's key: {key[:80]!r}")
    return key
