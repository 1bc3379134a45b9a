"""Answers that are not what their row asked for, although a runtime gave them: they count as answered, and are counted.

A runtime may ignore `response_format`, and what stands before it may have another model answer. A row that asks for no
format costs a search for its name.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from app.domain.rows import Row
from app.domain.runtimes import ServedModel
from executors.answered_names import named_model
from executors.schemas import matches

_RESPONSES = "/v1/responses"
_KEYS = {"/v1/chat/completions": b'"response_format"', _RESPONSES: b'"format"'}
_NO_SCHEMA = msgspec.Raw(b"null")
_JSON = frozenset({"json_object", "json_schema"})


class _Named(msgspec.Struct):
    schema: msgspec.Raw = _NO_SCHEMA


class _Format(msgspec.Struct):
    type: Any = None
    schema: msgspec.Raw = _NO_SCHEMA
    json_schema: _Named | None = None


class _Text(msgspec.Struct):
    format: _Format | None = None


class _Request(msgspec.Struct):
    response_format: _Format | None = None
    text: _Text | None = None


class _Message(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    message: _Message | None = None


class _Chat(msgspec.Struct):
    choices: list[_Choice] = []


class _Content(msgspec.Struct):
    type: Any = None
    text: Any = None


class _Item(msgspec.Struct):
    type: Any = None
    content: list[_Content] | None = None


class _Response(msgspec.Struct):
    output: list[_Item] = []


_request = msgspec.json.Decoder(_Request)
_chat = msgspec.json.Decoder(_Chat)
_response = msgspec.json.Decoder(_Response)


def is_off_format(row: Row, body: bytes) -> bool:
    """Whether a row asked for JSON and some text of its answer is none. A refusal or a call of a tool is no text."""
    key = _KEYS.get(row.endpoint)
    if key is None or key not in row.body:
        return False
    is_response = row.endpoint == _RESPONSES
    try:
        request = _request.decode(row.body)
        in_text = request.text.format if request.text is not None else None
        asked = in_text if is_response else request.response_format
        if asked is None or asked.type not in _JSON:
            return False
        texts = list(_of_response(_response.decode(body)) if is_response else _of_chat(_chat.decode(body)))
    except (msgspec.MsgspecError, RecursionError):
        return False  # a request or an answer of another shape: it is judged elsewhere
    return not all(_fits(text, asked) for text in texts)


def is_of_other_model(asked: str, body: bytes, models: Iterable[ServedModel]) -> bool:
    """Whether an answer names a model, and neither the one that was asked for nor another name of the same."""
    said = named_model(asked, body)
    if said in {None, asked, f"{asked}:latest"}:
        return False
    return not any(said in served.names and asked in served.names for served in models)


def _of_chat(answer: _Chat) -> Iterator[str]:
    for choice in answer.choices:
        message = choice.message
        if message is not None and not message.refusal and not message.tool_calls:
            yield message.content if isinstance(message.content, str) else ""


def _of_response(answer: _Response) -> Iterator[str]:
    for item in answer.output:
        for part in item.content or () if item.type == "message" else ():
            if part.type == "output_text":
                yield part.text if isinstance(part.text, str) else ""


def _fits(text: str, asked: _Format) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if asked.type == "json_object":
        return isinstance(value, dict)
    schema = asked.json_schema.schema if asked.json_schema is not None else asked.schema
    return matches(value, bytes(schema)) is not False
