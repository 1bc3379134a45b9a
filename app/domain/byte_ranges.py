"""Byte ranges: which part of a content a caller asked for (RFC 9110, 14), and which parts lie side by side."""

import re
from collections.abc import Iterable, Iterator

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


def neighbours(ranges: Iterable[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Put ranges (start, end exclusive) that follow each other without a gap together, in the order given.

    Each list spans at most `most` bytes, unless a single range is longer.
    """
    run: list[tuple[int, int]] = []
    for start, end in ranges:
        if run and (start != run[-1][1] or end - run[0][0] > most):
            yield run
            run = []
        run.append((start, end))
    if run:
        yield run
