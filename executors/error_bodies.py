"""A failure's body in OpenAI's shape, whatever the runtime said: `{"error": {"message", "type", "param", "code"}}`.

| the runtime's body | the row's |
|---|---|
| JSON with an `error` object | that, byte for byte |
| JSON of another shape (`error` a text, `detail`, a list) | an `error` around it: its words, and itself as `body` |
| empty, HTML, text, no UTF-8 | an `error` whose `message` quotes it |
"""

import json
import re
from typing import Any

import msgspec

from app.domain.quoting import printable

SHOWN_CHARACTERS = 1000

_OVERFLOW = re.compile(
    rb"context[ _-]?(?:length|size|window)|exceed(?:s|ed)?[ _-](?:the )?(?:available )?(?:maximum )?context"
    rb"|too large to process|(?:prompt|input)[a-z ]{0,20} too (?:long|large)",
    re.IGNORECASE,
)

_NO_MODEL = re.compile(
    rb"not[ _]found|could not find|does not exist|no such|unknown|invalid model|pinned to"
    rb"|not (?:loaded|served|available|configured)",
    re.IGNORECASE,
)


class _Body(msgspec.Struct):
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Own(msgspec.Struct):
    error: Any = None
    detail: Any = None
    object: Any = None


_body = msgspec.json.Decoder(_Body)
_own = msgspec.json.Decoder(_Own)


def in_openais_shape(status: int, body: bytes | None, raw: bytes) -> bytes:
    """Give the body of a failed row. `body` is what came as one line of JSON, None where `raw` is no JSON."""
    if body is None:
        return _error(f"the runtime answered {status}: {shown(raw)}")
    if _has_error_object(body):
        return body
    said = _said(body)
    message = said[:SHOWN_CHARACTERS] if said else f"the runtime answered {status}: {shown(body)}"
    return _error(message)[:-2] + b', "body": ' + body.strip() + b"}}"


def status_inside(error: bytes) -> int | None:
    """The HTTP status that an `error` inside a 200 stands for: its own `code`, else 500. None where it says nothing."""
    try:
        value = msgspec.json.decode(error)
    except (msgspec.MsgspecError, RecursionError):
        return 500
    if not value:
        return None  # null, "", {}: there was no error
    code = value.get("code") if isinstance(value, dict) else None
    return code if type(code) is int and 400 <= code <= 599 else 500  # noqa: PLR2004 - HTTP: client and server errors


def is_overflow(status: int | None, body: bytes | None) -> bool:
    """Tell a prompt that is too long for the model, said as 500: another try can only say the same."""
    return status == 500 and _OVERFLOW.search(body or b"") is not None  # noqa: PLR2004 - HTTP: internal server error


def misses_model(status: int | None, body: bytes | None, model: str) -> bool:
    """Tell an answer that may say that the model is not there (any more): a 404, or a 400 that says so and names it.

    llama-swap, `transformers serve` and LiteLLM say it as 400.
    """
    if status == 404:  # noqa: PLR2004 - HTTP: not found
        return True
    said, name = body or b"", model.encode("utf-8", "replace")
    return status == 400 and name in said and _NO_MODEL.search(said) is not None  # noqa: PLR2004 - bad request


def is_runtimes_own(body: bytes) -> bool:
    """Whether an error's body has a shape that engines use, and that proxies before them do not.

    That is an `error` (OpenAI, vLLM, llama.cpp, Ollama), a `detail` (FastAPI), or `"object": "error"` (SGLang).
    """
    try:
        own = _own.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return bool(own.error or own.detail) or own.object == "error"


def shown(raw: bytes) -> str:
    """Quote the printable text of what came, to a length that a person reads."""
    text = printable(raw[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")).strip()
    return text[:SHOWN_CHARACTERS] or ("(no text)" if raw.strip() else "(an empty body)")


def _has_error_object(body: bytes) -> bool:
    try:
        error = _body.decode(body).error
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, RecursionError):  # a lone surrogate, which is JSON too
        value = json.loads(body)
        return isinstance(value, dict) and isinstance(value.get("error"), dict)
    return not isinstance(error, msgspec.UnsetType) and bytes(error).startswith(b"{")


def _said(body: bytes) -> str:
    """Find the words in a body that is no error of OpenAI's shape."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    for key in ("error", "detail", "message"):
        if words := _words(value.get(key)):
            return words
    return ""


def _words(value: Any) -> str:
    if isinstance(value, list):  # FastAPI's: one entry a fault, each with `loc` and `msg`
        return "; ".join(filter(None, map(_words, value)))
    if isinstance(value, dict):
        place = value.get("loc")
        where = ".".join(map(str, place)) + ": " if isinstance(place, list) else ""
        said = value.get("msg")
        return f"{where}{said}" if isinstance(said, str) else ""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _error(message: str) -> bytes:
    error = {"message": message, "type": "runtime_error", "param": None, "code": None}
    return json.dumps({"error": error}).encode()
