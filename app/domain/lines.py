r"""Lines of a JSON Lines file, read from chunks of bytes in flat memory (INPUTS 1, B-30).

Only b"\n" ends a line: a U+2028, U+0085 or lone "\r" inside a JSON string is the user's text and cuts nothing.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DEFAULT_MAX_LINE_BYTES = 16 * 1024 * 1024


_FOREIGN = (
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\x00\x00\xfe\xff", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"\x1f\x8b", "compressed (gzip)"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd)"),
    (b"PK\x03\x04", "compressed (zip)"),
)


class Line(NamedTuple):
    r"""One line that is not blank.

    `number` counts from 1 and counts blank lines too. `start` and `end` are byte offsets in the file: the line's first
    byte (after a byte order mark) and the first byte after its newline. `content` lacks the newline and one "\r"
    before it; None when the line was longer than the reader's cap, so that nobody has to hold it.
    """

    number: int
    start: int
    end: int
    content: bytes | None


def foreign(head: bytes) -> str | None:
    """Say what a file is that is no text in UTF-8, by its first four bytes; None for any other."""
    for mark, what in _FOREIGN:
        if head.startswith(mark):
            return what
    # Without a byte order mark: the characters of JSON's first token are ASCII.
    zeros = bytes(byte == 0 for byte in head)
    if zeros in {b"\1\1\1\0", b"\0\1\1\1"}:
        return "UTF-32 text"
    return "UTF-16 text" if zeros in {b"\1\0\1\0", b"\0\1\0\1"} else None


def read_lines(
    chunks: Iterable[bytes],
    *,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    offset: int = 0,
    first_number: int = 1,
) -> Iterator[Line]:
    """Give the lines of a file, or of a byte range of it that begins at `offset` with line `first_number`.

    Holds at most `max_line_bytes` and one chunk, however the bytes are cut into chunks. One leading byte order mark is
    stripped at offset 0 only; whitespace-only lines are skipped.
    """
    number, start = first_number, offset
    for pieces, size, newline in _raw_lines(chunks, max_line_bytes):
        end = start + size + newline
        if pieces is None:
            yield Line(number, start, end, None)
        else:
            content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if start == 0 and content.startswith(BYTE_ORDER_MARK):
                start, content = len(BYTE_ORDER_MARK), content[len(BYTE_ORDER_MARK) :]
            if content and not content.isspace():
                yield Line(number, start, end, content[:-1] if content.endswith(b"\r") else content)
        number, start = number + 1, end


def _raw_lines(chunks: Iterable[bytes], max_line_bytes: int) -> Iterator[tuple[list[bytes] | None, int, int]]:
    """Give each line as (pieces, or None when over the cap; bytes without newline; 1 if a newline ended it else 0)."""
    pieces: list[bytes] | None = []
    size = 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            if size:
                pieces, size = _extended(pieces, size, part, max_line_bytes)
                yield pieces, size, 1
                pieces, size = [], 0
            else:
                yield ([part] if len(part) <= max_line_bytes else None), len(part), 1
        if rest:
            pieces, size = _extended(pieces, size, rest, max_line_bytes)
    if size:
        yield pieces, size, 0


def _extended(pieces: list[bytes] | None, size: int, part: bytes, cap: int) -> tuple[list[bytes] | None, int]:
    size += len(part)
    if pieces is None or size > cap:
        return None, size
    if part:
        pieces.append(part)
    return pieces, size
