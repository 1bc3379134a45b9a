"""Sets of row numbers as ranges: what a shard has finished, what a segment holds (PROTOCOL 5).

The text form is that of a print dialog, "0-4,7,9-12": short, ordered, readable in a database shell.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class RowSet:
    """An immutable set of row numbers. `ranges` are inclusive, ascending, disjoint and not adjacent."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, rows: Iterable[int]) -> "RowSet":
        """Build the set of `rows`, in any order, repeats allowed."""
        ranges: list[tuple[int, int]] = []
        for row in sorted(set(rows)):
            if ranges and row == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], row)
            else:
                ranges.append((row, row))
        return cls(tuple(ranges))

    @classmethod
    def span(cls, first: int, count: int) -> "RowSet":
        """The `count` rows from `first` on."""
        return cls(((first, first + count - 1),)) if count > 0 else cls()

    @classmethod
    def parse(cls, text: str) -> "RowSet":
        """Read the text form. Raises ValueError for anything that `str` would not write."""
        ranges: list[tuple[int, int]] = []
        for part in text.split(",") if text else ():
            first, dash, last = part.partition("-")
            if not first.isascii() or not first.isdigit() or (dash and not (last.isascii() and last.isdigit())):
                raise ValueError(f"not a range of rows: {part!r}")
            ranges.append((int(first), int(last) if dash else int(first)))
        result = cls(tuple(ranges))
        if str(result) != text or any(a > b for a, b in ranges) or not _ascending(ranges):
            raise ValueError(f"not an ordered set of row ranges: {text[:100]!r}")
        return result

    def __str__(self) -> str:
        """Write the text form."""
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.ranges)

    @property
    def from_one(self) -> str:
        """Write them for people, who count from 1."""
        return str(RowSet(tuple((a + 1, b + 1) for a, b in self.ranges)))

    def __len__(self) -> int:
        """Count the rows, not the ranges."""
        return sum(b - a + 1 for a, b in self.ranges)

    def __iter__(self) -> Iterator[int]:
        """Give the rows in ascending order."""
        for a, b in self.ranges:
            yield from range(a, b + 1)

    def __contains__(self, row: int) -> bool:
        """Tell whether `row` is in the set."""
        return any(a <= row <= b for a, b in self.ranges)

    def __or__(self, other: "RowSet") -> "RowSet":
        """Unite two sets."""
        merged: list[tuple[int, int]] = []
        for a, b in sorted(self.ranges + other.ranges):
            if merged and a <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
            else:
                merged.append((a, b))
        return RowSet(tuple(merged))

    def __sub__(self, other: "RowSet") -> "RowSet":
        """Leave the rows of `other` out."""
        left: list[tuple[int, int]] = []
        for first, last in self.ranges:
            start = first
            for a, b in other.ranges:
                if b < start or a > last:
                    continue
                if a > start:
                    left.append((start, a - 1))
                start = b + 1
            if start <= last:
                left.append((start, last))
        return RowSet(tuple(left))

    def isdisjoint(self, other: "RowSet") -> bool:
        """Tell whether no row is in both."""
        return len(self | other) == len(self) + len(other)


def _ascending(ranges: list[tuple[int, int]]) -> bool:
    return all(before[1] + 1 < after[0] for before, after in pairwise(ranges))
