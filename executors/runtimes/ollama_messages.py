"""OpenAI's messages as Ollama takes them: one text and its images each, tool calls with objects for arguments."""

import re
from typing import Any, Final

import msgspec

from executors.runtimes.ollama_body import (
    Fields,
    Malformed,
    Refused,
    elements_of,
    fields_of,
    raw_of,
    read_fields,
    value_of,
)

_PLAIN: Final = frozenset({"role", "content"})
_KNOWN: Final = _PLAIN | {"name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "thinking", "images"}
_DATA_URL: Final = re.compile(r"data:[^,;]*(?:;[^,;]*)*;base64,", re.IGNORECASE)


def native_messages(messages: msgspec.Raw | None) -> msgspec.Raw:
    """Translate the messages of a body; plain ones go on as they were written.

    Raises Refused for a part that Ollama cannot take (an image by URL, audio, a file), Malformed for what is no list
    of messages.
    """
    each = [fields_of(bytes(message)) for message in elements_of(messages)] if messages is not None else []
    if messages is None or not each:
        raise Malformed("no messages")
    if all(_is_plain(message) for message in each):
        return messages
    tools: dict[str, msgspec.Raw] = {}
    return msgspec.Raw(msgspec.json.encode([_native(message, tools) for message in each]))


def _is_plain(message: Fields) -> bool:
    """Tell whether OpenAI and Ollama write this message alike."""
    return (
        message.keys() == _PLAIN
        and bytes(message["content"]).startswith(b'"')
        and bytes(message["role"]) in {b'"user"', b'"system"', b'"assistant"'}
    )


def _native(message: Fields, tools: dict[str, msgspec.Raw]) -> Fields:
    """Translate one message. `tools` remembers which tool each call so far went to."""
    role = value_of(message.get("role", msgspec.Raw(b'""')))
    strange = message.keys() - _KNOWN
    if strange:
        raise Refused(f"messages.{min(strange)}")
    # OpenAI's newer name for `system`; a template that does not know it would leave the message out.
    native: Fields = {"role": raw_of("system" if role == "developer" else role)}
    native |= _content(message.get("content"))
    if "images" in message:
        native["images"] = message["images"]
    for name in ("thinking", "reasoning", "reasoning_content"):
        if name in message:
            native["thinking"] = message[name]
            break
    if "tool_calls" in message:
        native["tool_calls"] = _tool_calls(message["tool_calls"], tools)
    if role == "tool":
        native |= _tool_result(message, tools)
    elif "name" in message:
        raise Refused("messages.name", "Ollama has no names for those who speak; 'messages.name' would be lost.")
    return native


def _content(content: msgspec.Raw | None) -> Fields:
    if content is None:
        return {"content": msgspec.Raw(b'""')}
    if not bytes(content).lstrip().startswith(b"["):
        return {"content": content}
    texts: list[str] = []
    images: list[str] = []
    for part in value_of(content):
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": str(url) | {"url": str(url)}}:
                images.append(_image(url))
            case {"type": str(kind)} if kind not in {"text", "image_url"}:
                raise Refused(f"messages.{kind}")
            case _:
                raise Malformed("a part of a message is none of OpenAI's")
    made: dict[str, Any] = {"content": "\n".join(texts)}
    if images:
        made["images"] = images
    return {name: raw_of(value) for name, value in made.items()}


def _image(url: str) -> str:
    found = _DATA_URL.match(url)
    if found is None:
        raise Refused(
            "messages.image_url",
            "Ollama fetches no images: 'messages.image_url' must be a data URL with base64.",
        )
    return url[found.end() :]


def _tool_calls(calls: msgspec.Raw, tools: dict[str, msgspec.Raw]) -> msgspec.Raw:
    made = []
    for call in map(fields_of, map(bytes, elements_of(calls))):
        function = read_fields(call.get("function", msgspec.Raw(b"null")))
        arguments = value_of(function.get("arguments", msgspec.Raw(b"{}")))
        if isinstance(arguments, str):
            function["arguments"] = _object(arguments)
        one: dict[str, Any] = {"function": {name: function[name] for name in ("name", "arguments") if name in function}}
        if "id" in call:
            one["id"] = call["id"]
            tools[str(value_of(call["id"]))] = function.get("name", msgspec.Raw(b'""'))
        made.append(one)
    return msgspec.Raw(msgspec.json.encode(made))


def _object(arguments: str) -> msgspec.Raw:
    raw = (arguments.strip() or "{}").encode("utf-8", "surrogatepass")
    read_fields(raw)
    return msgspec.Raw(raw)


def _tool_result(message: Fields, tools: dict[str, msgspec.Raw]) -> Fields:
    made: Fields = {}
    if "tool_call_id" in message:
        made["tool_call_id"] = message["tool_call_id"]
        called = tools.get(str(value_of(message["tool_call_id"])))
        if called is not None:
            made["tool_name"] = called
    if "name" in message:
        made["tool_name"] = message["name"]
    return made
