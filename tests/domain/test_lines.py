"""Reading lines from bytes: what ends a line, what counts as one, and that chunks do not matter."""

import itertools
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from app.domain.lines import Line, read_lines

CAP = 20


def contents(data: bytes) -> list[bytes | None]:
    return [line.content for line in read_lines([data])]


def cut_at(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def test_only_a_newline_ends_a_line() -> None:
    text = '"a\u2028b\u2029c\u0085d\x0be\x0cf\rg"\n"h"'.encode()
    assert contents(text) == ['"a\u2028b\u2029c\u0085d\x0be\x0cf\rg"'.encode(), b'"h"']


def test_one_carriage_return_before_the_newline_is_stripped() -> None:
    assert contents(b"a\r\nb\r\r\nc\r") == [b"a", b"b\r", b"c"]


def test_a_byte_order_mark_is_stripped_at_the_start_of_the_file_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert list(read_lines([mark + b"a\n" + mark + b"b"])) == [Line(1, 3, 5, b"a"), Line(2, 5, 9, mark + b"b")]
    assert list(read_lines([mark + b"a"], offset=7)) == [Line(1, 7, 11, mark + b"a")]


def test_blank_lines_are_no_lines_but_are_counted_in_the_numbers() -> None:
    lines = list(read_lines([b"a\n\n \t\r\nb\n\n\n"]))
    assert [(line.number, line.content) for line in lines] == [(1, b"a"), (4, b"b")]


def test_nothing_gives_nothing() -> None:
    assert contents(b"") == contents(b"\n\n") == contents(b"\xef\xbb\xbf") == contents(b"\xef\xbb\xbf\r\n") == []


def test_a_last_line_without_a_newline_is_a_line() -> None:
    assert list(read_lines([b"a\nb"])) == [Line(1, 0, 2, b"a"), Line(2, 2, 3, b"b")]


def test_a_line_over_the_cap_is_named_and_not_kept() -> None:
    data = b"a\n" + b"x" * (CAP + 1) + b"\n" + b"y" * CAP + b"\n"
    assert list(read_lines([data], max_line_bytes=CAP)) == [
        Line(1, 0, 2, b"a"),
        Line(2, 2, 24, None),
        Line(3, 24, 45, b"y" * CAP),
    ]


def test_an_endless_line_is_read_without_keeping_it() -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(10_000):
            yield b"x" * 10_000

    assert list(read_lines(endless(), max_line_bytes=CAP)) == [Line(1, 0, 100_000_000, None)]


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b" ", b"\xef\xbb\xbf", b"xyz", b"0123456789", b"\xe2\x80\xa8"])),
    st.lists(st.integers(0, 80)),
)
def test_any_cut_into_chunks_gives_the_same_lines(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    whole = list(read_lines([data], max_line_bytes=CAP))
    assert list(read_lines(cut_at(data, cuts), max_line_bytes=CAP)) == whole
    assert list(read_lines([bytes([byte]) for byte in data], max_line_bytes=CAP)) == whole


@given(st.binary(max_size=60))
def test_offsets_point_at_the_lines(data: bytes) -> None:
    for line in read_lines([data], max_line_bytes=CAP):
        raw = data[line.start : line.end].removesuffix(b"\n")
        assert line.content is None or line.content == raw.removesuffix(b"\r")
        assert line.end == len(data) or data[line.end - 1 : line.end] == b"\n"
