"""Fast checksums of stored contents. They show damage, not forgery. Both sides may import this module."""

from collections.abc import Iterable, Sequence

import xxhash

BLOCK_BYTES = 1024 * 1024
"""A content is checked in blocks of this size, so that a part of it can be checked without reading the rest."""
CHECKSUM_DIGITS = 32


def checksum(data: bytes | memoryview) -> str:
    """Return the 128-bit XXH3 of `data` in hex."""
    return xxhash.xxh3_128_hexdigest(data)


def running() -> xxhash.xxh3_128:
    """Begin a checksum of bytes that come in pieces: `update`, then `hexdigest`."""
    return xxhash.xxh3_128()


class BlockSums:
    """Sums the blocks of a content that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._sums: list[str] = []
        self._block = xxhash.xxh3_128()
        self._room = BLOCK_BYTES

    def add(self, piece: bytes) -> None:
        """Go on with the next bytes of the content."""
        rest = memoryview(piece)
        while len(rest) >= self._room:
            self._block.update(rest[: self._room])
            self._sums.append(self._block.hexdigest())
            rest = rest[self._room :]
            self._block.reset()
            self._room = BLOCK_BYTES
        self._block.update(rest)
        self._room -= len(rest)

    def text(self) -> str:
        """Return the checksums of all blocks in hex, one after the other; the last block may be short."""
        is_last = self._room < BLOCK_BYTES
        return "".join([*self._sums, self._block.hexdigest()] if is_last else self._sums)


def range_sums(chunks: Iterable[bytes], ranges: Sequence[tuple[int, int]], *, offset: int = 0) -> list[str]:
    """Return the checksums of byte ranges of a content, ascending and apart, from its bytes from `offset` on.

    What a range lacks at the content's end is left out, and its checksum is another one.
    """
    sums = [xxhash.xxh3_128() for _ in ranges]
    at = 0
    for chunk in chunks:
        view = memoryview(chunk)
        while at < len(ranges) and ranges[at][0] < offset + len(chunk):
            start, end = ranges[at]
            sums[at].update(view[max(0, start - offset) : end - offset])
            if end > offset + len(chunk):
                break
            at += 1
        offset += len(chunk)
    return [found.hexdigest() for found in sums]
