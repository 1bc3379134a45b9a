"""/v1/completions by Ollama's /api/generate.

As on Ollama's own /v1, the model's template is put around the prompt; `"raw": true` in the body leaves it away.
"""

from typing import Any, Final

import msgspec

from app.domain.parameter_table import COMPLETIONS
from app.domain.rows import Reply
from executors.runtimes.ollama_answers import EMPTY, Ended, Head, Logprob, answered, broken, says_something
from executors.runtimes.ollama_body import (
    Malformed,
    Refused,
    Request,
    fields_of,
    finished,
    format_of,
    translate,
    value_of,
    whole,
)

PATH: Final = "/api/generate"


def request(body: bytes, *, cuts: bool) -> Request:
    """Translate a body. Raises Refused for what Ollama cannot do and Malformed for what is no completion."""
    fields = fields_of(body)
    top, options = translate(COMPLETIONS, fields)
    top["prompt"] = _prompt(fields.get("prompt"))
    top |= format_of(fields)
    if "suffix" in fields:
        top["suffix"] = fields["suffix"]
    if "logprobs" in fields and bytes(fields["logprobs"]) != b"false":
        top["logprobs"] = msgspec.Raw(b"true")
        top["top_logprobs"] = fields["logprobs"]
    return finished(fields, top if cuts else whole(top), options)


def _prompt(prompt: msgspec.Raw | None) -> msgspec.Raw:
    """Take one text. An empty one would only load the model, several or tokens have no place in a request."""
    given = value_of(prompt) if prompt is not None else ""
    if isinstance(given, list):
        kind = "list" if all(isinstance(one, str) for one in given) else "tokens"
        raise Refused(f"prompt.{kind}", "Ollama completes one text: 'prompt' must be one, not several and not tokens.")
    if prompt is None or given == "":
        raise Malformed("no prompt")
    return prompt


class _Answer(Ended):
    response: msgspec.Raw = EMPTY
    thinking: msgspec.Raw = EMPTY
    logprobs: list[Logprob] | None = None


_answer = msgspec.json.Decoder(_Answer)


def openai_reply(native: bytes, *, model: str, request_id: str, created: int) -> Reply:
    """Translate a whole native answer. `created` is in Unix seconds."""
    try:
        answer = _answer.decode(native)
    except msgspec.MsgspecError as error:
        return broken(f"Ollama's answer is none of /api/generate: {error}", request_id=request_id)
    if not answer.done:
        return broken("Ollama's answer has no end", request_id=request_id)
    choice: dict[str, Any] = {"index": 0, "text": answer.response, "logprobs": None}
    if answer.logprobs is not None:
        choice["logprobs"] = _openai_logprobs(answer.logprobs)
    if says_something(answer.thinking):
        choice["reasoning"] = answer.thinking
    choice["finish_reason"] = answer.done_reason or "stop"
    head = Head("cmpl", "text_completion", model, request_id, created)
    return answered(head, choice, answer)


def _openai_logprobs(tokens: list[Logprob]) -> dict[str, Any]:
    offsets: list[int] = []
    offset = 0
    for token in tokens:
        offsets.append(offset)
        offset += len(token.token)
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{other.token: other.logprob for other in token.top_logprobs} for token in tokens],
        "text_offset": offsets,
    }
