"""What a blob store does, whatever keeps the bytes (PROTOCOL 8; DESIGN 5: row bodies never enter SQL).

BlobError
├── BlobMissing      no such blob: the caller's record is wrong, trying again does not help
├── BlobDamaged      the bytes are not those that were written: they must not be used
└── BlobUnavailable  disk gone, not mounted, no permission: try later
    ├── BlobFull      no room: nothing can be written, all else works
    └── ForeignStore  the store that is there belongs to another installation
"""

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

_KEY = re.compile(r"[0-9a-f]{32}")


class BlobError(Exception):
    """A blob could not be read or written."""


class BlobMissing(BlobError):
    """The store is there and has no blob of that key, or cannot read it. `what` says which, in words for people."""

    what = "it is gone"

    def __init__(self, message: str, what: str = what) -> None:
        super().__init__(message)
        self.what = what


class BlobDamaged(BlobError):
    """The content is not what was written. `what` says where they differ, in words for people."""

    def __init__(self, what: str, key: str = "") -> None:
        super().__init__(f"blob {key}: {what}" if key else what)
        self.what = what


class BlobUnavailable(BlobError):
    """The store cannot do it now: full, unreachable, not permitted, not mounted."""


class ForeignStore(BlobUnavailable):
    """The store that is there is not the one that the database knows."""


class BlobFull(BlobUnavailable):
    """There is no room for what was to be written. What is there can be read."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a finished write holds: the count of bytes, their SHA-256 in hex, and their blocks' sums (app.checksums)."""

    bytes: int
    sha256: str
    block_sums: str


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

    A store keeps a marker with its id. A folder whose disk is not mounted answers "no such file", too: after `expect`
    a content is missing, or gone, only while the marker can be read and holds that id. Else the store is away.
    """

    def identity(self) -> str | None:
        """Return the id in the marker; None where there is no marker."""

    def mark(self, store_id: str) -> None:
        """Write the marker."""

    def expect(self, store_id: str) -> None:
        """Raise BlobUnavailable from now on while the marker is not there, and ForeignStore while it is another's."""

    def all_keys(self) -> Iterator[str]:
        """Name the contents, in no order."""

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
        """Return how much more there is room for; None where that is unknown, also while the store hangs."""

    def probe(self) -> None:
        """Write a content and delete it. Raises BlobUnavailable, also when the store has hung for some seconds."""


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
