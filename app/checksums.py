"""Fast checksums of stored contents. They show damage, not forgery. Both sides may import this module."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

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


class GrowingSums:
    """Sums ranges of lines while a content is read, where the end of a range is known only once the next one begins.

    Holds the line that is not whole yet, and the chunk. Of a line longer than `max_line_bytes` there will be no range,
    so nothing is held any more.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._held: deque[memoryview] = deque()
        self._at = 0
        """Where what is held begins: up to here bytes are summed, or are in no range."""
        self._sum = xxhash.xxh3_128()
        self._at_end: tuple[int, xxhash.xxh3_128] | None = None
        """A range's end so far and the checksum up to there, once lines behind it are in `_sum`."""

    def reading(self, chunks: Iterable[bytes], end: Callable[[], int | None]) -> Iterator[bytes]:
        """Pass a content on. `end` gives the end of the range so far; None: none has begun."""
        read = line_start = 0
        for chunk in chunks:
            self._held.append(memoryview(chunk))
            newline = chunk.rfind(b"\n")
            if newline >= 0:
                line_start = read + newline + 1
            yield chunk
            read += len(chunk)
            self._pass(end(), line_start)
            if read - line_start > self._max_line_bytes:
                self._skip(read)

    def begin(self, start: int) -> None:
        """Begin a range behind the last one."""
        self._skip(start)
        self._sum, self._at_end = xxhash.xxh3_128(), None

    def end(self, end: int) -> str:
        """End it, and give its checksum in hex."""
        if self._at_end is not None and self._at_end[0] == end:
            return self._at_end[1].hexdigest()
        self._add(end)
        return self._sum.hexdigest()

    def _pass(self, end: int | None, line_start: int) -> None:
        """Let go of what no line that is still to come needs."""
        if end is None:
            self._skip(line_start)
            return
        if end > self._at:
            self._add(end)
        if line_start > end:  # blank lines: they are in the range if another row follows in it
            if self._at_end is None or self._at_end[0] != end:
                self._at_end = (end, self._sum.copy())
            self._add(line_start)

    def _add(self, to: int) -> None:
        for piece in self._taken(to):
            self._sum.update(piece)

    def _skip(self, to: int) -> None:
        for _ in self._taken(to):
            pass

    def _taken(self, to: int) -> Iterator[memoryview]:
        while self._held and self._at < to:
            piece = self._held[0][: to - self._at]
            if len(piece) == len(self._held[0]):
                self._held.popleft()
            else:
                self._held[0] = self._held[0][len(piece) :]
            self._at += len(piece)
            yield piece
