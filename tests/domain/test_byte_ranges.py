"""Ranges as RFC 9110 means them: a slice, everything, or nothing to give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.byte_ranges import Unsatisfiable, neighbours, parse_range

SIZE = 100


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("bytes=0-", (0, 100)),
        ("bytes=10-19", (10, 20)),
        ("bytes=10-10", (10, 11)),
        ("bytes=90-500", (90, 100)),
        ("bytes=-5", (95, 100)),
        ("bytes=-500", (0, 100)),
        ("Bytes= 1 - 2", (1, 3)),
        (None, None),
        ("", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=5-4", None),
        ("bytes=1-2,4-5", None),
        ("lines=1-2", None),
        ("bytes=a-b", None),
        ("bytes=\u0661-", None),
    ],
)
def test_a_header_gives_a_slice_or_everything(header: str | None, found: tuple[int, int] | None) -> None:
    assert parse_range(header, SIZE) == found


@pytest.mark.parametrize(("header", "size"), [("bytes=100-", 100), ("bytes=-0", 100), ("bytes=0-", 0), ("bytes=-1", 0)])
def test_a_range_behind_the_end_cannot_be_had(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        parse_range(header, size)


@given(st.text(max_size=30), st.integers(0, 10))
def test_no_header_hurts(header: str, size: int) -> None:
    try:
        found = parse_range(f"bytes={header}", size)
    except Unsatisfiable:
        return
    assert found is None or 0 <= found[0] < found[1] <= size


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([], []),
        ([(0, 4), (4, 9), (9, 10)], [[(0, 4), (4, 9), (9, 10)]]),
        ([(0, 4), (5, 9)], [[(0, 4)], [(5, 9)]]),
        ([(5, 9), (0, 5)], [[(5, 9)], [(0, 5)]]),
        ([(0, 6), (6, 11), (11, 12)], [[(0, 6)], [(6, 11), (11, 12)]]),
        ([(0, 50), (50, 51)], [[(0, 50)], [(50, 51)]]),
    ],
)
def test_ranges_side_by_side_come_together_up_to_a_bound(
    ranges: list[tuple[int, int]], found: list[list[tuple[int, int]]]
) -> None:
    assert list(neighbours(ranges, 10)) == found
