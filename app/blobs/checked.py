"""Reading contents that are compared with what was written: whole blocks, each checked before a byte of it is used."""

import io
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from app.blobs.store import BlobDamaged, BlobStore
from app.checksums import BLOCK_BYTES, CHECKSUM_DIGITS, checksum

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the database says of a content. Without `block_sums` only its length can be verified."""

    key: str
    bytes: int
    block_sums: str | None

    @property
    def is_verifiable(self) -> bool:
        """Whether it was written with checksums."""
        return self.block_sums is not None


def pieces(blobs: BlobStore, content: Recorded, start: int = 0, end: int | None = None) -> Generator[bytes, None, None]:
    """Yield the bytes from `start` to `end`, a block or a part of one at a time; each block is read once.

    Raises BlobDamaged before any byte of a block that is not what was written, BlobMissing and BlobUnavailable.
    """
    check_size(blobs, content)
    end = content.bytes if end is None else min(end, content.bytes)
    if start >= end:
        return
    first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
    with blobs.open(content.key, first * BLOCK_BYTES, (last + 1) * BLOCK_BYTES) as file:
        for number in range(first, last + 1):
            offset = number * BLOCK_BYTES
            block = file.read(BLOCK_BYTES)
            _check_block(content, number, block)
            yield block[max(0, start - offset) : end - offset]


def as_file(source: Generator[bytes, None, None]) -> BinaryIO:
    """Make a file of pieces, whose reads raise what the pieces do; the caller closes it, and it closes them."""
    return cast("BinaryIO", io.BufferedReader(_Pieces(source), BLOCK_BYTES))


def verify(blobs: BlobStore, content: Recorded) -> None:
    """Read a whole content. Raises what `pieces` raises."""
    for _ in pieces(blobs, content):
        pass


def check_size(blobs: BlobStore, content: Recorded) -> None:
    """Compare the length alone. Raises what `pieces` raises."""
    found = blobs.size(content.key)
    if found != content.bytes:
        raise BlobDamaged(f"it has {found} bytes instead of {content.bytes}", content.key)


def _check_block(content: Recorded, number: int, block: bytes) -> None:
    start = number * BLOCK_BYTES
    end = min(start + BLOCK_BYTES, content.bytes)
    is_right = len(block) == end - start
    if is_right and content.block_sums is not None:
        digits = number * CHECKSUM_DIGITS
        is_right = checksum(block) == content.block_sums[digits : digits + CHECKSUM_DIGITS]
    if not is_right:
        raise BlobDamaged(f"its bytes {start} to {end - 1} are not those that were written", content.key)


class _Pieces(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, source: Generator[bytes, None, None]) -> None:
        super().__init__()
        self._source = source
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill `buffer` from the piece in hand, or the next one; 0 at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._source, b""))
        with memoryview(buffer) as view, view.cast("B") as room:
            count = min(len(room), len(self._rest))
            room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Close the file that the pieces come from."""
        if not self.closed:
            self._source.close()
        super().close()
