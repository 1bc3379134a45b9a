"""Byte ranges of HTTP (RFC 9110, 14): which part of a content a caller asked for."""

import re

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)


class Unsatisfiable(Exception):
    """The range begins behind the end."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Give `start` and `end` (exclusive) of a `Range` header within `size` bytes.

    None: no header, one that is malformed, or one with several ranges. A server may answer those with everything.
    Raises Unsatisfiable.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header is not None else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        last = min(int(match[2]), size)
        if last == 0:
            raise Unsatisfiable
        return size - last, size
    start = int(match[1])
    end = min(int(match[2]) + 1, size) if match[2] else size
    if match[2] and int(match[2]) < start:
        return None
    if start >= size:
        raise Unsatisfiable
    return start, end
