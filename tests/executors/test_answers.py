"""A runtime's JSON reaches the output file unchanged, on one ASCII line (OPENAI_CONTRACT 1.9)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.rows import Usage
from executors.answers import one_ascii_line, reply_of
from executors.http_wire import Answer
from executors.usage import usage_of


def replied(body: bytes, status: int = 200) -> bytes | None:
    return reply_of(Answer(status, {}, body, reusable=True), request_id="r").body


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1e400, "b": 1E+2, "c": -0, "d": 1.10}',
        b'{"a":123456789012345678901234567890}',
        b'{"a":1,"a":2,"b":{"x":1,"x":[]}}',
        b'{  "z" :1 ,"a":\t2}',
        b'{"a":"\\u2028 \\ud83d\\ude00 \\/ \\n"}',
        b'{"a":"\\ud800"}',
    ],
)
def test_ascii_json_on_one_line_passes_byte_for_byte(body: bytes) -> None:
    assert replied(body) == body
    error = b'{"error": ' + body + b', "x": 1}'
    assert replied(error, 400) == error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (
            b'{"detail":[{"loc":["body","n"],"msg":"no number"},{"loc":["body",1],"msg":"no JSON"}]}',
            "body.n: no number; body.1: no JSON",
        ),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"error":null,"message":"\\ud800"}', "?"),
        (b'{"detail":{"x":1}}', 'the runtime answered 400: {"detail":{"x":1}}'),
        (b"[1]", "the runtime answered 400: [1]"),
        (b'"no"', 'the runtime answered 400: "no"'),
    ],
)
def test_an_error_of_another_shape_keeps_its_words_and_its_body(body: bytes, message: str) -> None:
    wrapped = replied(body, 400) or b""
    assert json.loads(wrapped)["error"]["message"] == message
    assert b'"body": ' + body in wrapped


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('{"a":"\u2028"}'.encode(), b'{"a":"\\u2028"}'),
        ('{"a":"é\x7f","é":1e400}'.encode(), b'{"a":"\\u00e9\x7f","\\u00e9":1e400}'),
        ('{"a":"😀"}'.encode(), b'{"a":"\\ud83d\\ude00"}'),
        (b'{\r\n "a":\n1}\n', b'{   "a": 1} '),
        (b'\xef\xbb\xbf{"a":1}', b'{"a":1}'),
        (
            '{"a":"\\u00e9\\\\é","a":12345678901234567890123}'.encode(),
            b'{"a":"\\u00e9\\\\\\u00e9","a":12345678901234567890123}',
        ),
    ],
)
def test_only_line_ends_and_raw_unicode_are_written_in_another_way(body: bytes, line: bytes) -> None:
    assert replied(body) == line


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_means_the_same_as_one_line(value: object) -> None:
    for indent in (None, 1):
        raw = json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")
        line = one_ascii_line(raw)
        assert line is not None
        assert len(line.decode("ascii").splitlines()) <= 1
        assert json.loads(line) == value


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"a":"\xff"}', b'{"a":1}{', b"[" * 100_000, b'{"a":"\x01"}', b"{'a':1}"]
)
def test_what_is_no_json_is_wrapped_or_refused(body: bytes) -> None:
    wrapped = json.loads(replied(body, 500) or b"")
    assert wrapped["error"]["type"] == "runtime_error"
    refused = reply_of(Answer(200, {}, body, reusable=True), request_id="r")
    assert refused.error is not None
    assert refused.request_id == "r"


def test_the_runtimes_own_request_id_stands() -> None:
    answer = Answer(200, {"x-request-id": "theirs"}, b"{}", reusable=True)
    assert reply_of(answer, request_id="ours").request_id == "theirs"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 7,
                "total_tokens": 12,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(5, 2, 7, 3, 12),
        ),
        (
            {
                "input_tokens": 5,
                "output_tokens": 7,
                "total_tokens": 12,
                "input_tokens_details": {"cached_tokens": 2},
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(5, 2, 7, 3, 12),
        ),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(input_tokens=5, total_tokens=5)),
        ({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}, Usage(5, 0, 0, 0, 5)),
        ({"prompt_tokens": "5", "completion_tokens": -1, "total_tokens": True}, Usage()),
        ({"prompt_tokens": 10**30, "completion_tokens": 1.5}, Usage()),
        ([1], Usage()),
        (None, Usage()),
    ],
)
def test_tokens_are_counted_in_every_dialect(usage: object, counted: Usage) -> None:
    assert usage_of(json.dumps(usage).encode()) == counted
    answer = Answer(200, {}, json.dumps({"usage": usage}).encode(), reusable=True)
    assert reply_of(answer, request_id="r").usage == counted


def test_tokens_that_cannot_be_read_cost_nothing_else() -> None:
    answer = Answer(200, {}, b'{"usage":{"prompt_tokens":1e400}}', reusable=True)
    assert reply_of(answer, request_id="r").ok
