"""A fuzzer over the reader of input files: validation, the worker and a slow reader of the standard agree on every row.

Whatever the bytes are nobody raises, no row is skipped or invented, and numbers, ids, bodies and verdicts are the same
on both sides. GPUYARD_TEST_FILES is the number of files.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.domain.input_lines import CheckedLine, check_line
from app.domain.inputs import InputLimits, InputReport, Shard, validate
from app.domain.lines import Line, foreign
from app.domain.nesting import MAX_DEPTH
from app.domain.rows import Row, RowError, RowErrorCode
from app.worker.rows import RefusedRow, read_rows
from tests.reference_reader import Read, read_file

CHAT = "/v1/chat/completions"
FILES = int(os.environ.get("GPUYARD_TEST_FILES", "400"))
SECONDS = 20.0
"""More than a hundred times what any of it takes; quadratic work takes minutes."""
MARK = b"\xef\xbb\xbf"
PIECES: tuple[bytes, ...] = (
    *(b"\n", b"\r\n", b"\r", b"\n\n", b" ", b"\t", b"\x0b", b"\x0c", b"\x00", b"\x1f", b"\x7f", b"\x85", b"\xa0"),
    *("\u2028".encode(), "\u2029".encode(), "\u0085".encode(), "\ufeff".encode(), "😀".encode(), MARK),
    *(b"\xff", b"\xc0\x80", b"\xed\xa0\xbd", b"\xf4\x90\x80\x80", b"\xe2\x80", b"\xfe\xff"),
    *(b"\\", b'"', b'\\"', b"\\u", b"\\ud83d", b"\\ude00", b"\\ud83d\\ude00", b"\\u0000", b"\\x41", b"\\/", b"\\'"),
    *(b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b".5", b"+1", b"0x1", b"9" * 5000, b"-" + b"1" * 4301),
    *(b"1E+2", b"1e", b"--1", b"true", b"nul", b"True", b"None", b"/**/", b"//", b"{", b"}", b"[", b"]", b",", b":"),
    *(b",}", b"[" * 300, b"]" * 300, b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, b'{"a":' * 300 + b"1" + b"}" * 300),
    *(b'"stream":true,', b'"stream":0,', b'"body":7,', b'"model":"n",', b'"custom_id":"r0",', b'"custom_id":null,'),
    *(b'"url":"/v1/x",', b'"method":"GET",', b'"mod\\u0065l":"m",', b'"body":{"model":"x"},', b'"":"",', b"x" * 600),
)


def line(number: int, extra: str = "") -> bytes:
    return (
        f'{{"custom_id":"r{number}","method":"POST","url":"{CHAT}","body":{{{extra}"model":"m","n":[1,{{"a":null}}]}}}}'
    ).encode()


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file in order, in which a few things then go wrong."""
    extras = [
        "",
        '"t":"日\u2028\u0085",',
        '"t":"\\ud83d\\ude00",',
        '"t":"\\ud83d",',
        '"stream":true,',
        '"stream":null,',
    ]
    lines = [line(number, draw(st.sampled_from(extras))) for number in range(draw(st.integers(1, 5)))]
    ending = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\n \n"]))
    data = bytearray(ending.join(lines) + draw(st.sampled_from([b"", ending])))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["insert", "insert", "insert", "flip", "cut", "repeat", "end", "mark", "encode"])):
            case "insert":
                data[at:at] = draw(st.sampled_from(PIECES))
            case "flip" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 12))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 200))]
            case "end":
                del data[at:]
            case "mark":
                data[0:0] = MARK
            case "encode":
                encoding = draw(st.sampled_from(["utf-16", "utf-32-be", "cp500"]))
                start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
                part = bytes(data[start : end if end >= 0 else len(data)])
                data[start : start + len(part)] = part.decode("utf-8", "replace").encode(encoding, "replace")
    return bytes(data)


def checked(data: bytes, **limits: int) -> InputReport:
    return validate(lambda: [data], endpoint=CHAT, limits=InputLimits(**limits))


def ran(data: bytes, shards: tuple[Shard, ...]) -> list[Row | RefusedRow]:
    """What workers make of a file that was cut into shards."""
    return [row for shard in shards for row in ran_shard(data, shard)]


def ran_shard(data: bytes, shard: Shard) -> Iterator[Row | RefusedRow]:
    rejected = {found.row: RowError(found.code, found.message) for found in shard.rejected}
    part = data[shard.start : shard.end]
    return read_rows([part], first_row=shard.first_row, endpoint=CHAT, offset=shard.start, rejected=rejected)


def told(row: Row | RefusedRow) -> tuple[Any, ...]:
    if isinstance(row, Row):
        return (row.number, row.custom_id, row.model, row.body)
    return (row.number, row.custom_id, row.error.code)


def expected(number: int, read: Read) -> tuple[Any, ...]:
    if read.rejected is not None:
        return (number, read.custom_id, read.rejected)
    return (number, read.custom_id, read.model, read.body)


@settings(
    max_examples=FILES, derandomize=FILES == 400, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(files(), st.integers(1, 3))
@example(MARK + line(0), 1)
@example(line(0) + b"\n" + line(0), 1)
def test_both_sides_read_a_file_as_the_standard_has_it(data: bytes, shard_rows: int) -> None:
    began = time.monotonic()
    truth = read_file(data, CHAT)
    report = checked(data, shard_rows=shard_rows)
    assert report.rows == (len(truth) if foreign(data[:4]) is None else 0)
    faults = [(read.line, read.fault) for read in truth if read.fault is not None]
    if not truth:
        assert [error.code.value for error in report.errors] == ["empty_file"]
    elif foreign(data[:4]) is None:
        named = {(error.line, error.code.value) for error in report.errors}
        assert set(faults) <= named
        others = {line for line, code in named if code != "duplicate_custom_id"}  # a line at fault may have used it
        assert others <= {line for line, _ in faults}
    if report.ok:
        assert [told(row) for row in ran(data, report.shards)] == [expected(n, read) for n, read in enumerate(truth)]
    else:  # as if it had come round validation: each row that is in order runs, each other one fails by itself
        rows = list(read_rows([data], first_row=0, endpoint=CHAT))
        assert [row.number for row in rows] == list(range(len(truth)))
        for row, read in zip(rows, truth, strict=True):
            if read.fault is None:
                assert told(row) == expected(row.number, read) or row.custom_id == read.custom_id
                assert isinstance(row, Row) == (read.rejected is None) or was_used(row, truth)
            else:
                assert isinstance(row, RefusedRow)
    assert time.monotonic() - began < SECONDS


def was_used(row: Row | RefusedRow, truth: list[Read]) -> bool:
    """A line that is at fault may have used the id before, as far as it can be read."""
    is_refused = isinstance(row, RefusedRow) and row.error.code is RowErrorCode.DUPLICATE_CUSTOM_ID
    return is_refused and any(read.fault is not None for read in truth[: row.number])


def below(frames: int, line: bytes) -> Any:
    """What validation says of a line with so many calls around it."""
    if frames:
        return below(frames - 1, line)
    return check_line(Line(1, 0, len(line), line), endpoint=CHAT)


@pytest.mark.parametrize("depth", [10, 100, MAX_DEPTH - 2, MAX_DEPTH - 1, 400, 800, 100_000])
def test_how_deep_a_row_may_nest_does_not_hang_on_who_reads_it(depth: int) -> None:
    """Validation, the worker and whoever writes the files all have to find its id (OPENAI_CONTRACT 1.6)."""
    text = line(0, '"deep":' + "[" * depth + "]" * depth + ",")
    verdicts = [below(frames, text) for frames in (0, 300, 600)]
    is_read = depth + 2 <= MAX_DEPTH
    assert [isinstance(verdict, CheckedLine) for verdict in verdicts] == [is_read] * 3
    (row,) = read_rows([text], first_row=0, endpoint=CHAT)
    assert isinstance(row, Row) == is_read


def test_brackets_in_a_text_nest_nothing() -> None:
    text = line(0, '"t":"' + "[{" * 1000 + '\\"' + "[" * 1000 + '","many":[' + "[]," * 1000 + "0],")
    assert checked(text).ok
    (row,) = read_rows([text], first_row=0, endpoint=CHAT)
    assert isinstance(row, Row)


@pytest.mark.parametrize(
    "filling",
    [
        b"[" * 2_000_000,
        b'{"a":' * 400_000,
        b'"' + b"\\" * 2_000_000,
        b'"' + b"\\ud83d" * 300_000 + b'"',
        b"9" * 2_000_000,
        b"[" + b"1," * 1_000_000 + b"1]",
        b"[" + b"[]," * 600_000 + b"0]",
        b"{" + b'"k":1,' * 300_000 + b'"k":1}',
        b"\n" * 2_000_000,
        b" " * 2_000_000 + b"1",
        b'"' + b"\xed\xa0\xbd" * 600_000 + b'"',
    ],
    ids=lambda filling: repr(filling[:8]),
)
def test_no_megabytes_take_long(filling: bytes) -> None:
    data = line(0).replace(b'"n":[1', b'"n":[' + filling) + b"\n" + line(1)
    began = time.monotonic()
    report = checked(data)
    rows = list(read_rows([data], first_row=0, endpoint=CHAT))
    assert time.monotonic() - began < SECONDS
    assert len(rows) == report.rows
