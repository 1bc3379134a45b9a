"""/v1/embeddings by Ollama's /api/embed, one row a request or many (B-06 to B-09, B-16, B-20)."""

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from app.domain.parameter_table import EMBEDDINGS
from app.domain.rows import Reply, Row, RowError, RowErrorCode, Usage
from executors.runtimes.ollama_answers import ascii_json, broken
from executors.runtimes.ollama_body import (
    Malformed,
    Refused,
    Request,
    fields_of,
    finished,
    translate,
    value_of,
)

PATH: Final = "/api/embed"


@dataclass(frozen=True, slots=True)
class Embedding:
    """A row as /api/embed takes it. `request` is for it alone; `base64` is done by us, Ollama has only numbers."""

    row: Row
    request: Request
    base64: bool
    dimensions: int | None

    @property
    def input(self) -> msgspec.Raw:
        """What to embed: a text, or a list."""
        return self.request.fields["input"]

    @property
    def vectors(self) -> int:
        """How many vectors it asks for."""
        return 1 if bytes(self.input).startswith(b'"') else len(value_of(self.input))

    @property
    def sharing(self) -> bytes:
        """What the rows of one request have in common: everything but the input."""
        return msgspec.json.encode({**self.request.fields, "input": None}, order="sorted")


def read(row: Row, *, cuts: bool) -> Embedding:
    """Read a row. `cuts` lets Ollama cut a text that is longer than its context, silently.

    Raises Refused for what Ollama cannot do and Malformed for what is no request for embeddings.
    """
    fields = fields_of(row.body)
    top, options = translate(EMBEDDINGS, fields)
    _check(top.get("input"))
    if "dimensions" in fields:
        top["dimensions"] = fields["dimensions"]
    coding = value_of(fields["encoding_format"]) if "encoding_format" in fields else "float"
    if coding not in {"float", "base64"}:
        raise Refused("encoding_format")
    if not cuts:
        top.setdefault("truncate", msgspec.Raw(b"false"))
    dimensions = value_of(top["dimensions"]) if "dimensions" in top else None
    return Embedding(row, finished(fields, top, options), coding == "base64", dimensions)


def _check(given: msgspec.Raw | None) -> None:
    texts = value_of(given) if given is not None else None
    if not texts or not isinstance(texts, str | list):
        raise Malformed("nothing to embed")
    if isinstance(texts, list) and any(not isinstance(text, str) for text in texts):
        raise Refused("input.tokens", "Ollama embeds texts: 'input' must be one or a list of them, not tokens.")


def shares(row: Row, *, cuts: bool) -> bool:
    """Tell whether this row may share a request: one text, and nothing that is refused (B-09)."""
    if row.endpoint != EMBEDDINGS:
        return False
    try:
        return bytes(read(row, cuts=cuts).input).startswith(b'"')
    except (Malformed, Refused):
        return False


def shared_request(rows: Sequence[Embedding]) -> bytes:
    """Write one request for rows with the same `sharing`, each with one text."""
    return msgspec.json.encode({**rows[0].request.fields, "input": [row.input for row in rows]})


class _Answer(msgspec.Struct):
    embeddings: list[msgspec.Raw]
    prompt_eval_count: int = 0


_answer = msgspec.json.Decoder(_Answer)
_vector = msgspec.json.Decoder(list[float])
_OF_NUMBERS = b"[]0123456789+-.eE, "


class Unpaired(Exception):
    """The answer has another number of vectors than was asked for, so no vector can be given to a row."""


def openai_replies(native: bytes, rows: Sequence[Embedding], *, request_id: str) -> list[Reply]:
    """Give each row its vectors, and its share of the tokens. Raises Unpaired when they cannot be told apart."""
    try:
        answer = _answer.decode(native)
    except msgspec.MsgspecError as error:
        raise Unpaired(f"Ollama's answer is none of /api/embed: {error}") from error
    wanted = [row.vectors for row in rows]
    if len(answer.embeddings) != sum(wanted):
        raise Unpaired(f"Ollama gave {len(answer.embeddings)} vectors for {sum(wanted)} texts")
    vectors = iter(answer.embeddings)
    tokens = _split(answer.prompt_eval_count, [len(bytes(row.input)) for row in rows])
    return [
        _reply(row, [next(vectors) for _ in range(count)], tokens=share, request_id=request_id)
        for row, count, share in zip(rows, wanted, tokens, strict=True)
    ]


def _reply(row: Embedding, vectors: list[msgspec.Raw], *, tokens: int, request_id: str) -> Reply:
    data = []
    for index, vector in enumerate(map(bytes, vectors)):
        if not _is_vector(vector):
            return broken("Ollama gave something that is no vector", request_id=request_id)
        length = vector.count(b",") + 1
        if row.dimensions is not None and length != row.dimensions:
            message = f"'dimensions' is {row.dimensions}, and this model on this Ollama gives {length}."
            return Reply(error=RowError(RowErrorCode.UNSUPPORTED_PARAMETER, message), request_id=request_id)
        written = b'"%b"' % _base64(_vector.decode(vector)) if row.base64 else vector
        data.append(b'{"object":"embedding","index":%d,"embedding":%b}' % (index, written))
    body = b'{"object":"list","data":[%b],"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}}' % (
        b",".join(data),
        ascii_json(row.row.model),
        tokens,
        tokens,
    )
    return Reply(status=200, body=body, request_id=request_id, usage=Usage(input_tokens=tokens, total_tokens=tokens))


def _is_vector(raw: bytes) -> bool:
    """Tell a list of numbers, of valid JSON, by its characters: reading each number would cost ten times as much."""
    return raw.count(b"[") == 1 and raw[1:2] != b"]" and not raw.translate(None, _OF_NUMBERS)


def _base64(numbers: list[float]) -> bytes:
    """OpenAI's encoding: float32, little-endian."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers))


def _split(total: int, weights: list[int]) -> Iterator[int]:
    """Split tokens over rows by the length of their texts; the parts sum up to the total."""
    given = reached = 0
    whole = sum(weights)
    for weight in weights:
        reached += weight
        part = total * reached // whole - given
        given += part
        yield part
