"""The bytes of each shard are summed while the file is read, however it is cut into chunks and shards (PROTOCOL 8)."""

import tracemalloc
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from app.checksums import GrowingSums, range_sums
from app.domain.inputs import InputLimits, InputReport, validate
from tests.domain.test_inputs import CHAT, MARK, row

BETWEEN = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\n  \n\n", b"\n" + b" " * 300 + b"\n"])


def summed(chunks: list[bytes], **limits: int) -> InputReport:
    bounds = InputLimits(**limits)
    return validate(lambda: chunks, endpoint=CHAT, limits=bounds, sums=GrowingSums(bounds.max_line_bytes))


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(data[:size])
        data = data[size:]
    return [*chunks, data]


@given(
    st.lists(st.tuples(st.integers(0, 200), BETWEEN), min_size=1, max_size=12),
    st.lists(st.integers(0, 400), max_size=30),
    st.integers(1, 4),
    st.integers(200, 2000),
    st.sampled_from([b"", MARK, b"\n\n", b" \r\n"]),
    st.booleans(),
)
def test_the_sums_are_those_of_the_shards_bytes(
    lines: list[tuple[int, bytes]], sizes: list[int], shard_rows: int, shard_bytes: int, head: bytes, is_ended: bool
) -> None:
    data = head + b"".join(row(f"r{n}", x="x" * size) + ending for n, (size, ending) in enumerate(lines))
    data = data if is_ended else data.rstrip()
    report = summed(cut(data, sizes), shard_rows=shard_rows, shard_bytes=shard_bytes)
    assert report.ok
    ranges = [(shard.start, shard.end) for shard in report.shards]
    assert [shard.input_sum for shard in report.shards] == range_sums([data], ranges)


@given(st.binary(max_size=300), st.lists(st.integers(0, 40), max_size=30))
def test_bytes_that_are_no_input_do_no_harm(data: bytes, sizes: list[int]) -> None:
    lines = b"\n".join([row("a"), data, b"x" * 500, row("b")])
    assert summed(cut(lines, sizes), max_line_bytes=250).error_count >= 1


def test_neither_blank_lines_nor_an_endless_one_are_held() -> None:
    def chunks() -> Iterator[bytes]:
        yield row("a") + b"\n"
        for _ in range(64):
            yield (b" " * 1023 + b"\n") * 2**8
        yield row("b") + b"\n" + b'{"x":"'
        for _ in range(64):
            yield b"y" * 2**18

    tracemalloc.start()
    limits = InputLimits(max_line_bytes=2**20)
    report = validate(chunks, endpoint=CHAT, limits=limits, sums=GrowingSums(limits.max_line_bytes))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.rows, report.error_count) == (3, 1)
    assert peak < 6 * 2**20, f"{peak / 2**20:.1f} MiB for a file of 32"
