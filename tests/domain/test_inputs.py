"""Whole input files, one test for each field report on reading them (INPUTS 1 to 5), and the cut into shards."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.inputs import InputLimits, InputReport, validate
from app.domain.lines import read_lines

CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
MARK = b"\xef\xbb\xbf"


def row(custom_id: Any = "a", url: Any = CHAT, method: Any = "POST", **body: Any) -> bytes:
    request = {"custom_id": custom_id, "method": method, "url": url, "body": {"model": "m", "messages": []} | body}
    return json.dumps(request).encode()


def rows(count: int) -> list[bytes]:
    return [row(f"r{number}") for number in range(count)]


def check(data: bytes, endpoint: str = CHAT, **limits: int) -> InputReport:
    return validate(lambda: [data], endpoint=endpoint, limits=InputLimits(**limits))


def found(report: InputReport) -> list[tuple[str, str | None, int | None]]:
    return [(error.code.value, error.param, error.line) for error in report.errors]


def test_line_separators_inside_a_string_cut_nothing() -> None:
    body = json.dumps({"model": "m", "prompt": "x\u2028y\u2029z\u0085"}, ensure_ascii=False)
    line = f'{{"custom_id":"a","method":"POST","url":"{CHAT}","body":{body}}}'
    report = check(line.encode())
    assert report.ok
    assert report.rows == 1


def test_one_leading_byte_order_mark_is_stripped() -> None:
    report = check(MARK + b"\n".join(rows(3)))
    assert report.ok
    assert report.rows == 3
    assert report.shards[0].start == 3


@pytest.mark.parametrize("data", [b"\n".join([row("a"), MARK + row("b")]), MARK + MARK + row("a")])
def test_a_byte_order_mark_elsewhere_is_an_invalid_line(data: bytes) -> None:
    assert [code for code, _, _ in found(check(data))] == ["invalid_json_line"]


def test_windows_line_ends_give_the_same_rows_and_numbers() -> None:
    report = check(b"\r\n".join([*rows(3), b"{"]) + b"\r\n")
    assert report.rows == 4
    assert found(report) == [("invalid_json_line", None, 4)]
    assert check(b"\r\n".join(rows(3)) + b"\r\n").ok


def test_blank_lines_are_skipped_in_the_total_and_counted_in_the_line() -> None:
    report = check(b"\n".join([row("a"), b"", b"   ", row("b"), b"", b""]))
    assert report.ok
    assert report.rows == 2
    assert found(check(b"\n".join([row("a"), b"", b"   ", b"nope", b"", b""]))) == [("invalid_json_line", None, 4)]


def test_the_last_row_needs_no_newline() -> None:
    assert check(b"\n".join(rows(2))).rows == 2


@pytest.mark.parametrize("line", [b"null", b"[1,2]", b'"x"', b"1", b"true"])
def test_json_that_is_no_object_is_its_own_error(line: bytes) -> None:
    report = check(b"\n".join([row("a"), line, row("b")]))
    assert found(report) == [("invalid_request", None, 2)]


def test_a_body_that_is_no_object_is_an_error_about_the_body() -> None:
    line = json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": "str"}).encode()
    assert found(check(line)) == [("invalid_request", "body", 1)]


def test_a_repeated_id_is_an_error_on_its_later_lines() -> None:
    """B-22."""
    report = check(b"\n".join([row("a"), row("b"), row("a"), row("a")]))
    assert found(report) == [("duplicate_custom_id", "custom_id", 3), ("duplicate_custom_id", "custom_id", 4)]
    assert "'a' of line 3 was already used in line 1" in report.errors[0].message


def test_a_duplicate_in_the_last_of_50_000_rows_is_found() -> None:
    lines = rows(49_999)
    report = check(b"\n".join([*lines, lines[7]]))
    assert found(report) == [("duplicate_custom_id", "custom_id", 50_000)]
    assert report.error_count == 1


def test_an_id_that_a_bad_line_used_is_used() -> None:
    assert found(check(b"\n".join([row("a", url="/x"), row("a")]))) == [
        ("url_mismatch", "url", 1),
        ("duplicate_custom_id", "custom_id", 2),
    ]


def test_two_ids_with_one_hash_accuse_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.domain.duplicates.hash", lambda _: 7, raising=False)
    assert check(b"\n".join(rows(20))).ok
    assert found(check(b"\n".join([*rows(20), row("r3")]))) == [("duplicate_custom_id", "custom_id", 21)]


def test_ids_are_compared_by_what_they_say_not_by_how_they_are_spelled() -> None:
    assert found(check(row("é") + b"\n" + row("é").replace(b"\\u00e9", "é".encode()))) == [
        ("duplicate_custom_id", "custom_id", 2)
    ]


@pytest.mark.parametrize("custom_id", ["", 7, None, {}, [], True, "x" * 10_000, "x" * 513, "half \ud83d"])
def test_an_id_that_is_no_short_text_is_an_error(custom_id: Any) -> None:
    assert found(check(row(custom_id))) == [("invalid_request", "custom_id", 1)]


def test_an_absent_id_is_a_missing_parameter() -> None:
    line = row().replace(b'"custom_id": "a", ', b"")
    assert found(check(line)) == [("missing_required_parameter", "custom_id", 1)]


@pytest.mark.parametrize("custom_id", ["日本", "a\r\nX: y", "\x00", "😀", "x" * 512, "日" * 512, "\ud83d\ude00"])
def test_any_text_and_control_character_is_an_id(custom_id: str) -> None:
    assert check(row(custom_id)).ok


@pytest.mark.parametrize(
    "url", ["/v1/responses", "/chat/completions", "v1/chat/completions", CHAT + "/", "/evil" + CHAT, CHAT.upper(), ""]
)
def test_a_url_must_equal_the_endpoint_and_the_message_says_both(url: str) -> None:
    report = check(row(url=url))
    assert found(report) == [("url_mismatch", "url", 1)]
    assert f'"{url}"' in report.errors[0].message
    assert f'"{CHAT}"' in report.errors[0].message


@pytest.mark.parametrize("method", ["GET", "post", ""])
def test_the_only_method_is_post(method: str) -> None:
    assert found(check(row(method=method))) == [("invalid_request", "method", 1)]


def test_the_exact_number_of_rows_passes_and_one_more_does_not() -> None:
    assert check(b"\n".join(rows(50))).ok
    assert check(b"\n".join(rows(50)), max_rows=50).ok
    report = check(b"\n".join([*rows(53), b"not even json"]), max_rows=50)
    assert found(report) == [("too_many_tasks", None, 51)]
    assert report.errors[0].message == "The input file holds 54 requests; the limit is 50."


def test_embedding_inputs_are_counted_not_rows() -> None:
    inputs: list[Any] = ["one", ["a", "b"], [1, 2, 3], [[1], [2]], []]  # 1 + 2 + 1 + 2 + 1
    data = b"\n".join(row(f"r{i}", EMBEDDINGS, input=value) for i, value in enumerate(inputs))
    assert check(data, EMBEDDINGS, max_rows=7).ok
    report = check(data, EMBEDDINGS, max_rows=6)
    assert found(report) == [("too_many_tasks", "body.input", 5)]
    assert report.errors[0].message == "The input file holds 7 embedding inputs; the limit is 6."


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n", MARK, MARK + b"\n"])
def test_a_file_without_rows_is_empty(data: bytes) -> None:
    assert found(check(data)) == [("empty_file", None, None)]


def test_a_lone_surrogate_fails_its_row_and_no_other() -> None:
    report = check(b"\n".join([row("a"), row("b", prompt="emoji \ud83d"), row("c", prompt="\ud83d\ude00 \\ud83d")]))
    assert report.ok
    assert [(rejected.row, rejected.code.value) for rejected in report.shards[0].rejected] == [(1, "INVALID_JSON")]


@pytest.mark.parametrize("constant", [b"NaN", b"Infinity", b"-Infinity"])
def test_constants_that_are_not_json_are_an_invalid_line(constant: bytes) -> None:
    report = check(row(temperature=77).replace(b"77", constant))
    assert found(report) == [("invalid_json_line", None, 1)]
    assert report.errors[0].message.startswith("This line is not parseable as valid JSON.")


def test_a_huge_row_is_an_error_that_says_its_size() -> None:
    report = check(b"\n".join([row("big", image="x" * 5000), *rows(9)]), max_line_bytes=1000)
    assert found(report) == [("invalid_request", None, 1)]
    assert "This line has 5" in report.errors[0].message
    assert "limit" in report.errors[0].message


def test_a_row_larger_than_a_shard_is_a_shard_of_its_own() -> None:
    report = check(b"\n".join([*rows(2), row("big", image="x" * 5000), *rows(9)[5:]]), shard_bytes=1000)
    assert [shard.rows for shard in report.shards] == [2, 1, 4]


@pytest.mark.parametrize(
    "line",
    [
        row(n=77).replace(b"77", b"[" * 100_000 + b"]" * 100_000),
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_deep_nesting_is_an_invalid_line(line: bytes) -> None:
    report = check(line)
    assert found(report) == [("invalid_json_line", None, 1)]
    assert "nested too deeply" in report.errors[0].message


def test_an_integer_of_5_000_digits_passes() -> None:
    assert check(row(seed=77).replace(b"77", b"9" * 5000)).ok
    assert found(check(row(7).replace(b"7", b"9" * 5000))) == [("invalid_request", "custom_id", 1)]


@pytest.mark.parametrize(
    "line",
    [
        row(x="!").replace(b"!", b"\xff"),
        row(x="!").replace(b"!", b"\xed\xa0\xbd"),
        b"\x00",
        b"{}x",
    ],
)
def test_bytes_that_are_no_utf_8_json_are_an_invalid_line(line: bytes) -> None:
    assert {code for code, _, _ in found(check(line))} == {"invalid_json_line"}


def test_a_model_is_required_and_is_a_printable_name() -> None:
    missing = b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}'
    assert found(check(missing)) == [("missing_required_parameter", "body.model", 1)]
    for model in ("", 7, None, "a\x00b", "\ud83d", "m" * 513):
        assert found(check(row(model=model))) == [("invalid_request", "body.model", 1)]


def test_the_models_of_a_file_are_told_by_shard_and_in_all() -> None:
    report = check(b"\n".join(row(f"r{i}", model="ba"[i // 3]) for i in range(6)), shard_rows=3)
    assert [shard.models for shard in report.shards] == [("b",), ("a",)]
    assert report.models == ("a", "b")


@pytest.mark.parametrize("stream", [True, 1, "true"])
def test_stream_fails_its_row_and_no_other(stream: Any) -> None:
    report = check(b"\n".join([row("a"), row("b", stream=stream), row("c", stream=False), row("d", stream=None)]))
    assert report.ok
    assert [(r.row, r.code.value) for r in report.shards[0].rejected] == [(1, "UNSUPPORTED_PARAMETER")]


def test_what_only_the_runtime_can_judge_passes() -> None:
    assert check(row(messages="not a list", zzz=1)).ok
    assert check(row().replace(b"{", b'{"extra":[1],', 1)).ok


def test_the_last_of_a_repeated_key_counts() -> None:
    line = row("a").replace(b'"custom_id"', b'"custom_id":7,"custom_id"', 1)
    assert check(line).ok


def test_messages_are_ascii_and_short() -> None:
    report = check(row(url="\ud83d\x00日" * 10_000))
    assert report.errors[0].message.isascii()
    assert len(report.errors[0].message) < 500


def test_memory_is_flat_in_the_number_of_rows() -> None:
    def many() -> Iterator[bytes]:
        for number in range(40_000):
            yield b'{"custom_id":"request-number-%d","method":"POST","url":"/v1/x","body":{"model":"m"}}\n' % number

    tracemalloc.start()
    report = validate(many, endpoint="/v1/x", limits=InputLimits(max_rows=40_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.rows == 40_000
    assert peak < 1_200_000  # 8 bytes an id, and the plan


blank = st.sampled_from([b"", b" ", b"\r", b"\t \r"])


@given(
    st.lists(st.tuples(st.lists(blank, max_size=2), st.integers(0, 300), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(100, 1500),
    st.booleans(),
    st.booleans(),
)
def test_shards_hold_every_row_exactly_once(
    parts: list[tuple[list[bytes], int, bool]], shard_rows: int, shard_bytes: int, mark: bool, last_newline: bool
) -> None:
    lines: list[bytes] = []
    for number, (blanks, padding, carriage_return) in enumerate(parts):
        lines += [*blanks, row(f"r{number}", pad="x" * padding) + (b"\r" if carriage_return else b"")]
    data = MARK * mark + b"\n".join(lines) + b"\n" * last_newline
    report = check(data, shard_rows=shard_rows, shard_bytes=shard_bytes)
    assert report.ok
    ids = []
    for number, shard in enumerate(report.shards):
        inside = list(read_lines([data[shard.start : shard.end]], offset=shard.start))
        assert shard.number == number
        assert shard.first_row == len(ids)
        assert shard.rows == len(inside) <= shard_rows
        assert shard.rows == 1 or shard.end - shard.start <= shard_bytes
        ids += [json.loads(line.content or b"")["custom_id"] for line in inside]
    assert ids == [f"r{number}" for number in range(len(parts))]
    assert report.rows == len(ids)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_report(data: bytes) -> None:
    report = check(data)
    assert report.error_count >= len(report.errors) > 0
    assert all(error.message.isascii() for error in report.errors)


def test_a_shard_knows_for_each_model_what_its_rows_ask_for_that_not_every_runtime_takes() -> None:
    """REQUIREMENTS R-23."""
    lines = [
        row("r0", model="a", n=2, temperature=0),
        row("r1", model="b", n=1, user="u"),
        row("r2", model="a", logit_bias={"1": 1}),
        row("r3", model="c", n=3, stream=True),
    ]
    report = check(b"\n".join(lines), shard_rows=3)
    assert [shard.parameters for shard in report.shards] == [(("a", ("logit_bias", "n")),), ()]
