"""The content of a hand-in: what is written reads back, and what nobody would write is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.outputs import output_line
from app.domain.rows import Reply, RowError, RowErrorCode
from app.schemas.handins import HandInError, HandInReader, output_lines, read_hand_in, write_line

COMPLETED = Reply(status=200, body=b'{"ok":true}')
FAILED = Reply(error=RowError(RowErrorCode.REQUEST_TIMEOUT, "late"))
REFUSED_BY_RUNTIME = Reply(status=500, body=b"{}")
LESSENED = Reply(status=200, body=b"{}", dropped=("logit_bias",))


def written(row: int, reply: Reply, custom_id: str | None = "a") -> bytes:
    return write_line(row, reply, output_line("batch_1", row, custom_id, reply))


@given(
    st.dictionaries(
        st.integers(0, 10**9),
        st.tuples(
            st.sampled_from([COMPLETED, FAILED, REFUSED_BY_RUNTIME, LESSENED]),
            st.none() | st.text('aé\u2028\x00\n"\\\ud83d😀', max_size=5),
        ),
    ),
    st.integers(1, 50),
)
def test_what_is_written_reads_back_with_the_place_of_each_line(
    rows: dict[int, tuple[Reply, str | None]], chunk_bytes: int
) -> None:
    content = b"".join(written(row, reply, custom_id) for row, (reply, custom_id) in rows.items())
    chunks = [content[i : i + chunk_bytes] for i in range(0, len(content), chunk_bytes)]
    lines = list(read_hand_in("batch_1", chunks))
    outputs = [content[line.start : line.end] for line in lines]
    assert b"".join(output_lines(chunks)).splitlines(keepends=True) == outputs
    assert list(output_lines([content] if content else [])) == outputs
    assert [(line.row, line.completed) for line in lines] == [(row, reply.ok) for row, (reply, _) in rows.items()]
    for line, (row, (reply, custom_id)) in zip(lines, rows.items(), strict=True):
        assert content[line.start : line.end] == output_line("batch_1", row, custom_id, reply) + b"\n"


GOOD = written(1, COMPLETED)


@pytest.mark.parametrize(
    "content",
    [
        GOOD + GOOD,
        GOOD.removesuffix(b"\n"),
        GOOD.replace(b"\n", b"\r\n"),
        GOOD + b"\n",
        b"\n" + GOOD,
        b" \n" + GOOD,
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"1\tc", b"-1\tc"),
        GOOD.replace(b"1\tc", b"\xb2\tc"),
        GOOD.replace(b"1\tc", b"1_0\tc"),
        GOOD.replace(b"1\tc", b"\tc"),
        GOOD.replace(b"1\tc", b"9" * 13 + b"\tc"),
        GOOD.replace(b"\tc\t", b"\tx\t"),
        GOOD.replace(b"\tc\t", b"\t\t"),
        GOOD.replace(b"\tc\t", b"\tf\t"),
        GOOD.replace(b"\tc\t", b" c "),
        GOOD.replace(b'"a"', '"é"'.encode()),
        GOOD.replace(b'"a"', b"7"),
        GOOD.replace(b"batch_req_", b"batch_req_0"),
        b"2" + GOOD.removeprefix(b"1"),
        GOOD.replace(b'"custom_id":"a",', b"").replace(b'"error":null', b'"error":null,"custom_id":"a"'),
        GOOD.replace(b'"id":', b'"id": '),
        GOOD.replace(b"200", b'"200"'),
        GOOD.replace(b"true", b"NaN"),
        GOOD.replace(b"}\n", b"}}\n"),
        GOOD.replace(b'"error":null', b'"error":{"code":"x","message":""}'),
        GOOD.replace(b'"error":null', b'"extra":null,"error":null'),
        GOOD.replace(b',"error":null', b""),
        b'1\tf\t{"id":"x","custom_id":"a","response":null,"error":null}\n',
        b"1\tc\tnull\n",
        b"1\tc\t\n",
        b"1\n",
        b"1\tc\t[1]\n",
        written(1, REFUSED_BY_RUNTIME).replace(b"\tf\t", b"\tc\t"),
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(HandInError):
        list(read_hand_in("batch_1", [content]))


def test_half_a_surrogate_pair_in_a_runtimes_answer_does_not_stop_a_hand_in() -> None:
    reply = Reply(status=200, body=b'{"text":"cut \\ud83d"}')
    (line,) = read_hand_in("batch_1", [written(1, reply)])
    assert line.completed
    with pytest.raises(HandInError):
        list(read_hand_in("batch_1", [written(1, reply).replace(b"\tc\t", b"\tf\t")]))
    with pytest.raises(HandInError):
        list(read_hand_in("batch_1", [written(1, reply).replace(b"200", b'"x"')]))


def test_an_answer_nested_out_of_reach_does_not_stop_a_hand_in() -> None:
    reply = Reply(status=200, body=b"[" * 100_000 + b"]" * 100_000)
    assert [line.row for line in read_hand_in("batch_1", [written(1, reply), written(2, FAILED)])] == [1, 2]


def test_more_rows_than_the_header_says_are_refused_at_the_first() -> None:
    reader = HandInReader("batch_1", max_rows=1)
    assert len(reader.feed(written(1, COMPLETED))) == 1
    with pytest.raises(HandInError, match="more rows"):
        reader.feed(written(2, COMPLETED))


@given(st.binary(max_size=100))
def test_no_bytes_do_anything_but_be_refused(content: bytes) -> None:
    try:
        lines = list(read_hand_in("batch_1", [content]))
    except HandInError:
        return
    assert not lines
