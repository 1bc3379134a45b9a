"""A shard's bytes as rows: bodies untouched, refusals decided before anything runs, nothing skipped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.input_lines import CheckedLine, check_line
from app.domain.inputs import validate
from app.domain.lines import Line
from app.domain.rows import Row, RowError, RowErrorCode
from app.worker.rows import RefusedRow, read_rows

CHAT = "/v1/chat/completions"


def line(custom_id: str = '"a"', body: str = '{"model":"m"}', url: str = CHAT, method: str = "POST") -> bytes:
    return f'{{"custom_id":{custom_id},"method":"{method}","url":"{url}","body":{body}}}'.encode()


def rows_of(*lines: bytes, first_row: int = 0, rejected: dict[int, RowError] | None = None) -> list[Row | RefusedRow]:
    return list(read_rows([b"\n".join(lines)], first_row=first_row, endpoint=CHAT, rejected=rejected))


def only(*lines: bytes) -> Row | RefusedRow:
    (row,) = rows_of(*lines)
    return row


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"m"}',
        '{ "z" : 1.0,\t"model": "m", "a":1e400, "model":"m" }',
        '{"model":"m","text":"\u2028\u0085日😀"}',
        '{"mod\\u0065l":"m","seed":' + "9" * 5000 + "}",
        '{"model":"m","stream":false}',
        '{"model":7,"model":"m"}',
        '{"model":"m","stream":[],"x":{"body":1}}',
    ],
)
def test_a_body_is_the_very_bytes_of_the_file(body: str) -> None:
    assert only(line(body=body)) == Row(0, "a", CHAT, "m", body.encode())


def test_the_last_of_a_repeated_body_counts_as_in_validation() -> None:
    text = line().replace(b'"body"', b'"body":{"model":"first"},"body"')
    assert only(text) == Row(0, "a", CHAT, "m", b'{"model":"m"}')
    wrong_first = line().replace(b'"body"', b' "body" : 7 , "custom_id":8,"custom_id":"b","body"')
    assert only(wrong_first) == Row(0, "b", CHAT, "m", b'{"model":"m"}')


def test_rows_count_from_the_first_row_and_skip_blank_lines() -> None:
    rows = rows_of(line('"a"'), b"", line('"b"') + b"\r", first_row=512)
    assert [(row.number, row.custom_id) for row in rows] == [(512, "a"), (513, "b")]


def test_a_byte_order_mark_belongs_to_the_start_of_the_file_and_not_of_a_shard() -> None:
    marked = b"\xef\xbb\xbf" + line()
    assert isinstance(only(marked), Row)
    (row,) = read_rows([marked], first_row=9, endpoint=CHAT, offset=1000)
    assert isinstance(row, RefusedRow)


def test_what_the_control_plane_refused_is_refused_with_its_words() -> None:
    error = RowError(RowErrorCode.UNSUPPORTED_PARAMETER, "so it was decided")
    rows = rows_of(line('"a"'), line('"b"'), first_row=5, rejected={6: error})
    assert rows == [Row(5, "a", CHAT, "m", b'{"model":"m"}'), RefusedRow(6, "b", error)]


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"\xff",
        b"null",
        b"[" * 100_000,
        b"\x00",
        line(body='{"model":"m","t":NaN}'),
        line(body='{"model":"m","t":"!"}').replace(b"!", b"\xff"),
    ],
)
def test_a_line_that_cannot_be_read_fails_as_a_row_and_is_never_skipped(text: bytes) -> None:
    first, bad, last = rows_of(line('"a"'), text, line('"b"'))
    assert isinstance(first, Row)
    assert isinstance(last, Row)
    assert isinstance(bad, RefusedRow)
    assert (bad.number, bad.custom_id, bad.error.code) == (1, None, RowErrorCode.INVALID_JSON)


@pytest.mark.parametrize(
    "text",
    [
        line(body="7"),
        line(body="{}"),
        line(body='{"model":""}'),
        line(url="/v1/embeddings"),
        line(method="GET"),
        b'{"custom_id":"a"}',
    ],
)
def test_a_line_of_the_wrong_shape_fails_under_its_own_id(text: bytes) -> None:
    row = only(text)
    assert isinstance(row, RefusedRow)
    assert (row.custom_id, row.error.code) == ("a", RowErrorCode.INVALID_JSON)


@pytest.mark.parametrize("custom_id", ["7", '""', '"\\ud83d"', "null"])
def test_an_id_that_is_none_fails_its_row_without_one(custom_id: str) -> None:
    row = only(line(custom_id))
    assert isinstance(row, RefusedRow)
    assert row.custom_id is None


def test_the_second_use_of_an_id_fails_and_the_first_runs() -> None:
    """B-23."""
    rows = rows_of(line('"a"'), line('"b"'), line('"\\u0061"'), line('"a"', body="{}"))
    assert [type(row) for row in rows] == [Row, Row, RefusedRow, RefusedRow]
    for row in rows[2:]:
        assert isinstance(row, RefusedRow)
        assert (row.custom_id, row.error.code) == ("a", RowErrorCode.DUPLICATE_CUSTOM_ID)


def test_stream_is_refused_here_too() -> None:
    row = only(line(body='{"model":"m","stream":true}'))
    assert isinstance(row, RefusedRow)
    assert row.error.code is RowErrorCode.UNSUPPORTED_PARAMETER


def test_a_lone_surrogate_is_refused_here_as_validation_did() -> None:
    row = only(line(body='{"model":"m","t":"\\ud83d"}'))
    assert isinstance(row, RefusedRow)
    assert row.error.code is RowErrorCode.INVALID_JSON


ALPHABET = 'aé\u2028\x00\n"\\\ud83d\ude00😀u{},:'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(ALPHABET, max_size=5) | st.just("m"),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "stream", "body", "x\u2028"]), children, max_size=4)
    ),
    max_leaves=8,
)
bodies = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "日"])}, optional={"stream": json_values, "x": json_values}
)
requests = st.fixed_dictionaries(
    {"custom_id": st.text(ALPHABET, min_size=1, max_size=4) | json_values, "body": bodies | json_values},
    optional={"extra": json_values},
)


@given(requests, st.booleans(), st.booleans(), st.sampled_from([None, 1]))
def test_the_worker_runs_exactly_what_validation_lets_run(
    request: dict[str, Any], escaped: bool, method_first: bool, indent: int | None
) -> None:
    fixed = {"method": "POST", "url": CHAT}
    value = fixed | request if method_first else request | fixed
    text = json.dumps(value, ensure_ascii=escaped, indent=indent).replace("\n", " ")
    content = text.encode("utf-8", "surrogatepass")
    checked = check_line(Line(1, 0, len(content), content), endpoint=CHAT)
    row = only(content)
    assert isinstance(row, Row) == (isinstance(checked, CheckedLine) and checked.rejected is None)
    if isinstance(row, Row):
        assert (row.custom_id, row.model) == (checked.custom_id, checked.model)  # type: ignore[union-attr]
        assert json.loads(row.body) == request["body"] or "NaN" in text


def test_the_shards_of_a_file_give_all_of_its_rows_to_workers() -> None:
    data = b"\xef\xbb\xbf" + b"\r\n".join(line(f'"r{number}"', body='{"model":"m","p":"日"}') for number in range(1000))
    report = validate(lambda: [data], endpoint=CHAT)
    rows = [
        row
        for shard in report.shards
        for row in read_rows(
            [data[shard.start : shard.end]], first_row=shard.first_row, endpoint=CHAT, offset=shard.start
        )
    ]
    assert [(row.number, row.custom_id) for row in rows] == [(number, f"r{number}") for number in range(1000)]
    assert all(isinstance(row, Row) for row in rows)
