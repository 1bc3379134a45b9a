"""Answers that are not in the form, or not of the model, that their rows asked for."""

import json
from typing import Any

import pytest

from app.domain.rows import Row
from app.domain.runtimes import ServedModel
from executors.answered_otherwise import is_of_other_model, is_off_format

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
OBJECT = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}
PERSON = {"type": "object", "properties": {"age": {"$ref": "#/$defs/age"}}, "required": ["age"]}
PERSON |= {"additionalProperties": False, "$defs": {"age": {"type": "integer", "minimum": 0}}}
NAMED = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": PERSON}}
NO_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "person"}}}
LIST = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}}


def row(endpoint: str = CHAT, **body: Any) -> Row:
    return Row(0, "a", endpoint, "m", json.dumps({"model": "m", **body}).encode())


def chat(*contents: str | None, **message: Any) -> bytes:
    choices = [{"index": n, "message": {"content": content, **message}} for n, content in enumerate(contents)]
    return json.dumps({"model": "m", "choices": choices}).encode()


def response(text: str) -> bytes:
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return json.dumps({"model": "m", "output": [{"type": "reasoning", "content": None}, message]}).encode()


@pytest.mark.parametrize(
    ("asked", "text", "is_off"),
    [
        ({"type": "json_object"}, '{"a": 1}', False),
        ({"type": "json_object"}, ' {"a": "\\ud83d"}\n', False),
        ({"type": "json_object"}, "[1]", True),
        ({"type": "json_object"}, '{"a": 1', True),
        ({"type": "json_object"}, 'Sure! {"a": 1}', True),
        ({"type": "json_object"}, "", True),
        (OBJECT, "{}", False),
        (OBJECT, '"text"', True),
        (LIST, "[1]", False),
        (LIST, "no", True),
        (NAMED, '{"age": 7}', False),
        (NAMED, '{"age": -7}', True),
        (NAMED, '{"age": "7"}', True),
        (NAMED, '{"age": 7, "name": "x"}', True),
        (NAMED, "{}", True),
        (NO_SCHEMA, "{}", False),
        (NO_SCHEMA, "no", True),
        ({"type": "text"}, "no", False),
        (None, "no", False),
    ],
)
def test_an_answer_is_held_against_the_format_that_its_row_asked_for(
    asked: dict[str, Any] | None, text: str, is_off: bool
) -> None:
    assert is_off_format(row(response_format=asked), chat(text)) is is_off
    flat = asked | asked.get("json_schema", {}) if asked is not None else None
    assert is_off_format(row(RESPONSES, text={"format": flat}), response(text)) is is_off


def test_each_choice_counts_and_a_refusal_or_a_call_of_a_tool_is_no_text() -> None:
    asked = row(response_format={"type": "json_object"})
    assert is_off_format(asked, chat("{}", "no"))
    assert not is_off_format(asked, chat(None, refusal="I cannot."))
    assert not is_off_format(asked, chat(None, tool_calls=[{"id": "call_1"}]))
    assert is_off_format(asked, chat(None))


@pytest.mark.parametrize("body", [b"[]", b'{"choices": 3}', b'{"choices": [null]}', b"{"])
def test_an_answer_of_another_shape_is_judged_elsewhere(body: bytes) -> None:
    assert not is_off_format(row(response_format={"type": "json_object"}), body)


def test_a_row_that_asks_for_no_format_has_its_answer_not_read() -> None:
    assert not is_off_format(row(messages=[{"role": "user", "content": "response_format"}]), chat("no"))
    assert not is_off_format(Row(0, "a", "/v1/embeddings", "m", b'{"format": 1}'), b"{}")


@pytest.mark.parametrize(
    ("said", "is_other"),
    [
        ('{"model": "m"}', False),
        ('{"model":"m"}', False),
        ('{"model" : "m"}', False),
        ('{"model": "m:latest"}', False),
        ('{"model": "path/of/m"}', False),
        ('{"model": "other"}', True),
        ('{"model": null}', False),
        ("{}", False),
    ],
)
def test_an_answer_may_name_the_model_by_any_of_its_names(said: str, is_other: bool) -> None:
    models = [ServedModel("m", ("path/of/m",)), ServedModel("other")]
    assert is_of_other_model("m", said.encode(), models) is is_other
