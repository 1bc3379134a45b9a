"""Ollama's native answers as OpenAI's: what chat, completions and embeddings share."""

from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from app.domain.rows import Blame, Reply, RowError, RowErrorCode, Usage
from executors.answers import one_ascii_line, reply_of
from executors.http_wire import Answer

EMPTY = msgspec.Raw(b'""')
FINGERPRINT = "fp_ollama"
"""What Ollama's own /v1 says."""


class Ended(msgspec.Struct):
    """How a native answer ends. Counts are tokens; Ollama leaves out what is 0."""

    done: bool = True
    done_reason: str = ""
    prompt_eval_count: int = 0
    eval_count: int = 0


class Token(msgspec.Struct):
    """A token with its log probability."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class Logprob(Token):
    """A token of the answer with what else stood at its place."""

    top_logprobs: list[Token] = []


class _Refusal(msgspec.Struct):
    error: str


_refusal = msgspec.json.Decoder(_Refusal)


def native_reply(answer: Answer, *, request_id: str) -> Reply:
    """Read a native answer: a good one as it stands, a refusal (`{"error": "text"}`) in OpenAI's shape.

    The text stays; the type is what Ollama's own /v1 says with that status.
    """
    reply = reply_of(answer, request_id=request_id)
    if reply.status is None or reply.ok:
        return reply
    try:
        text = _refusal.decode(answer.body).error
    except msgspec.MsgspecError:
        return reply
    kind = {400: "invalid_request_error", 404: "not_found_error"}.get(reply.status, "api_error")
    error = {"message": text, "type": kind, "param": None, "code": None}
    return replace(reply, body=ascii_json({"error": error}))


class Head(NamedTuple):
    """What stands above the choice of an answer. `created` is in Unix seconds."""

    id_prefix: str
    kind: str
    model: str
    request_id: str
    created: int


def says_something(text: msgspec.Raw) -> bool:
    """Tell whether a text that may be left out is there."""
    return bytes(text) not in {b'""', b"null"}


def answered(head: Head, choice: dict[str, Any], ended: Ended) -> Reply:
    """Make the reply of an answered row of chat or completions, with its usage inside and beside."""
    usage = Usage(
        input_tokens=ended.prompt_eval_count,
        output_tokens=ended.eval_count,
        total_tokens=ended.prompt_eval_count + ended.eval_count,
    )
    content = {
        "id": f"{head.id_prefix}-{head.request_id}",
        "object": head.kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": FINGERPRINT,
        "choices": [choice],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    }
    return Reply(status=200, body=ascii_json(content), request_id=head.request_id, usage=usage)


def broken(message: str, *, request_id: str) -> Reply:
    """Make the reply of a row whose answer makes no sense."""
    return Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, message), request_id=request_id, blame=Blame.UNCLEAR)


def ascii_json(value: Any) -> bytes:
    """Write one line of JSON in ASCII."""
    return one_ascii_line(msgspec.json.encode(value)) or b"null"
