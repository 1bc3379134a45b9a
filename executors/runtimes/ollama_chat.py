"""/v1/chat/completions by Ollama's /api/chat: the request into its words, the answer back into OpenAI's."""

from typing import Any, Final

import msgspec

from app.domain.parameter_table import CHAT
from app.domain.rows import Reply
from executors.runtimes.ollama_answers import EMPTY, Ended, Head, Logprob, Token, answered, broken, says_something
from executors.runtimes.ollama_body import (
    Fields,
    Request,
    fields_of,
    finished,
    format_of,
    translate,
    value_of,
    whole,
)
from executors.runtimes.ollama_messages import native_messages

PATH: Final = "/api/chat"


def request(body: bytes, *, cuts: bool) -> Request:
    """Translate a body. `cuts` lets Ollama cut a conversation that is longer than its context, silently.

    Raises Refused for what Ollama cannot do and Malformed for what is no chat.
    """
    fields = fields_of(body)
    top, options = translate(CHAT, fields)
    top["messages"] = native_messages(fields.get("messages"))
    top |= format_of(fields) | _think(fields)
    for name in ("tools", "logprobs", "top_logprobs"):
        if name in fields:
            top[name] = fields[name]
    if "tool_choice" in fields and value_of(fields["tool_choice"]) == "none":
        top.pop("tools", None)  # it cannot be told to use none, so it is told of none
    return finished(fields, top if cuts else whole(top), options)


def _think(fields: Fields) -> Fields:
    effort = fields.get("reasoning_effort")
    if "reasoning" in fields:
        effort = fields_of(bytes(fields["reasoning"])).get("effort", effort)
    if effort is None or "think" in fields:
        return {}
    return {"think": msgspec.Raw(b"false") if bytes(effort) == b'"none"' else effort}


class _Function(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _ToolCall(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    content: msgspec.Raw = EMPTY
    thinking: msgspec.Raw = EMPTY
    tool_calls: list[_ToolCall] | None = None


class _Answer(Ended):
    message: _Message | None = None
    logprobs: list[Logprob] | None = None


_answer = msgspec.json.Decoder(_Answer)


def openai_reply(native: bytes, *, model: str, request_id: str, created: int) -> Reply:
    """Translate a whole native answer. `created` is in Unix seconds."""
    try:
        answer = _answer.decode(native)
    except msgspec.MsgspecError as error:
        return broken(f"Ollama's answer is none of /api/chat: {error}", request_id=request_id)
    said = answer.message
    if said is None or not answer.done:
        return broken("Ollama's answer has no end", request_id=request_id)
    message: dict[str, Any] = {"role": "assistant", "content": said.content}
    if says_something(said.thinking):
        message["reasoning"] = said.thinking
    if said.tool_calls:
        message["tool_calls"] = [_openai_call(call, request_id, index) for index, call in enumerate(said.tool_calls)]
        if bytes(said.content) == b'""':
            message["content"] = None
    choice: dict[str, Any] = {"index": 0, "message": message}
    if answer.logprobs is not None:
        choice["logprobs"] = {"content": [_openai_logprob(token) for token in answer.logprobs], "refusal": None}
    choice["finish_reason"] = "tool_calls" if said.tool_calls else answer.done_reason or "stop"
    head = Head("chatcmpl", "chat.completion", model, request_id, created)
    return answered(head, choice, answer)


def _openai_call(call: _ToolCall, request_id: str, index: int) -> dict[str, Any]:
    arguments = bytes(call.function.arguments).decode()
    return {
        "id": call.id or f"call_{request_id[:8]}_{index}",
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def _openai_logprob(token: Logprob) -> dict[str, Any]:
    return _openai_token(token) | {"top_logprobs": [_openai_token(other) for other in token.top_logprobs]}


def _openai_token(token: Token) -> dict[str, Any]:
    spelled = list(token.token.encode()) if token.bytes is None else token.bytes
    return {"token": token.token, "logprob": token.logprob, "bytes": spelled}
