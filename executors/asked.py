"""What a row asked for, held against what came: a 200 is not yet an answer to the question (B-14).

Servers ignore what they do not know: `n`, `dimensions`, `encoding_format`. Each check costs microseconds and reads no
text of an answer: it counts choices, and looks at how a vector begins.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.domain.rows import Row
from executors.error_bodies import shown
from executors.usage import usage_of

_NUMBER = frozenset(b"-0123456789")
_DROPPED = "abort"
_NOT_DONE = frozenset({"queued", "in_progress"})


class Thing(msgspec.Struct):
    """Any JSON object: only counted."""


class Choice(msgspec.Struct):
    """One element of `choices`."""

    logprobs: Raw | UnsetType = UNSET
    finish_reason: Any = None


class Vector(msgspec.Struct):
    """One element of an embeddings answer's `data`."""

    embedding: Raw | UnsetType = UNSET


class Peek(msgspec.Struct):
    """What any answer may hold. The rest of it is passed over."""

    usage: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    model: Any = None

    @property
    def was_broken_off(self) -> bool:
        """Whether the runtime ended the work by itself and answered what it had until then."""
        return False

    @property
    def is_void(self) -> bool:
        """Whether it answers nothing, whatever was asked: no engine says that, and a proxy might."""
        return False

    def fault(self, row: Row) -> str | None:  # noqa: ARG002 - the endpoints' own answers say more
        """Say in what this is no answer to `row`, None where it is one."""
        return None


class Choices(Peek):
    """An answer of chat or completions."""

    choices: list[Choice] | UnsetType = UNSET

    @property
    def was_broken_off(self) -> bool:
        """Whether a choice says so: vLLM and SGLang answer 200 and "abort" for rows they drop when they are stopped."""
        if isinstance(self.choices, UnsetType):
            return False
        return _DROPPED in [one.finish_reason for one in self.choices]

    @property
    def is_void(self) -> bool:
        """There is no choice at all."""
        return isinstance(self.choices, UnsetType) or not self.choices

    def fault(self, row: Row) -> str | None:
        """Each prompt must have `n` choices, and logprobs where they were asked for."""
        choices = [] if isinstance(self.choices, UnsetType) else self.choices
        came = len(choices)
        is_chat = row.endpoint == "/v1/chat/completions"
        if is_chat and came == 1 and b'"n"' not in row.body and b'"logprobs"' not in row.body:
            return None  # nearly every row
        asked = _decoded(_generate_request, row.body, _GenerateRequest())
        n = asked.n if type(asked.n) is int and asked.n > 0 else 1
        prompts = 1 if is_chat else _count_inputs(asked.prompt)
        if came != n * prompts:
            of_prompts = f" for each of {prompts} prompts" if prompts > 1 else ""
            return f"asked for n={n}{of_prompts}, the runtime answered {came} choice{'' if came == 1 else 's'}"
        wants_logprobs = asked.logprobs is not None and asked.logprobs is not False
        if wants_logprobs and not any(map(_has_logprobs, choices)) and self._has_tokens():
            return "asked for logprobs, the runtime answered without"
        return None

    def _has_tokens(self) -> bool:
        """Tell whether there was something to give logprobs of; the token that ends an answer has none."""
        return not isinstance(self.usage, UnsetType) and usage_of(bytes(self.usage)).output_tokens > 1


class Vectors(Peek):
    """An answer of embeddings."""

    data: list[Vector] | UnsetType = UNSET

    @property
    def is_void(self) -> bool:
        """There is no vector at all."""
        return isinstance(self.data, UnsetType) or not self.data

    def fault(self, row: Row) -> str | None:
        """Each input must have one vector, in the form and of the size that was asked for."""
        asked = _decoded(_embed_request, row.body, _EmbedRequest())
        inputs = _count_inputs(asked.input)
        vectors = [] if isinstance(self.data, UnsetType) else self.data
        if len(vectors) != inputs:
            return f"asked for the vectors of {inputs} inputs, the runtime answered {len(vectors)}"
        faults = (_vector_fault(vector.embedding, asked) for vector in vectors)
        return next((fault for fault in faults if fault), None)


class Output(Peek):
    """An answer of responses."""

    output: list[Thing] | UnsetType = UNSET
    status: Any = None

    @property
    def is_void(self) -> bool:
        """There is no output at all."""
        return isinstance(self.output, UnsetType)

    def fault(self, row: Row) -> str | None:  # noqa: ARG002 - the same for each
        """It must be whole: a runtime that works on in the background has answered nothing yet."""
        if isinstance(self.output, UnsetType):
            return "the runtime answered without `output`"
        if isinstance(self.status, str) and self.status in _NOT_DONE:
            return f"the runtime answered with status {self.status!r}, before the answer was there"
        return None


PEEKS: dict[str, type[Peek]] = {
    "/v1/chat/completions": Choices,
    "/v1/completions": Choices,
    "/v1/embeddings": Vectors,
    "/v1/responses": Output,
}
"""How the answers of an endpoint are read; those of any other are a plain Peek."""


class _GenerateRequest(msgspec.Struct):
    n: Any = None
    logprobs: Any = None
    prompt: Raw | UnsetType = UNSET


class _EmbedRequest(msgspec.Struct):
    input: Raw | UnsetType = UNSET
    dimensions: Any = None
    encoding_format: Any = None


_generate_request = msgspec.json.Decoder(_GenerateRequest)
_embed_request = msgspec.json.Decoder(_EmbedRequest)
_raw_list = msgspec.json.Decoder(list[Raw])
_Request = TypeVar("_Request", _GenerateRequest, _EmbedRequest)


def _decoded(decoder: msgspec.json.Decoder[_Request], body: bytes, otherwise: _Request) -> _Request:
    """Read a row's body. One that only the runtime can read asks for nothing special."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return otherwise


def _has_logprobs(choice: Choice) -> bool:
    return not isinstance(choice.logprobs, UnsetType) and bytes(choice.logprobs) != b"null"


def _count_inputs(value: Raw | UnsetType) -> int:
    """Count a `prompt` or an `input`: a text or a list of token ids is one, a list of either has many."""
    if isinstance(value, UnsetType) or not bytes(value).startswith(b"["):
        return 1
    items = _raw_list.decode(value)
    is_tokens = bool(items) and bytes(items[0])[0] in _NUMBER
    return 1 if is_tokens else len(items)


def _vector_fault(embedding: Raw | UnsetType, asked: _EmbedRequest) -> str | None:
    written = b"" if isinstance(embedding, UnsetType) else bytes(embedding)
    is_text = written.startswith(b'"')
    if is_text != (asked.encoding_format == "base64"):
        wanted, came = ("base64", "a list of numbers") if not is_text else ("numbers", "a text")
        return f"asked for {wanted}, the runtime answered {came} as a vector"
    if not is_text:
        first = written[1:100].lstrip()[:1] if written.startswith(b"[") else b""
        if first == b"[":
            return "the runtime answered one vector for each token, not one for each input"
        if not first or first[0] not in _NUMBER or b"n" in written:
            return f"the runtime answered no vector of numbers: {shown(written[:100])}"
    if type(asked.dimensions) is int and (size := _size(written, is_text=is_text)) != asked.dimensions:
        return f"asked for dimensions={asked.dimensions}, the runtime answered vectors of {size} numbers"
    return None


def _size(written: bytes, *, is_text: bool) -> int:
    """Count a vector's numbers. As base64 it is four bytes a number."""
    if is_text:
        return (len(written.strip(b'"').rstrip(b"=")) * 3 // 4) // 4
    return written.count(b",") + 1
