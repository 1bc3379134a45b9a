"""From a runtime's HTTP answer to a row's Reply (B-14).

A body that is JSON passes through byte for byte. Only what would break the output file is changed, and without a
loss: every reply is one line, in ASCII (a raw U+2028 makes `str.splitlines` see two lines).
"""

import json
import re
from typing import Any, NoReturn

import msgspec

from app.domain.rows import Reply, RowError, RowErrorCode, Usage
from executors.http_wire import Answer

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_SHOWN_CHARACTERS = 1000
_MAX_COUNT = 2**53


class _Peek(msgspec.Struct):
    usage: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_peek = msgspec.json.Decoder(_Peek)
_check = msgspec.json.Decoder(msgspec.Raw)


def reply_of(answer: Answer, *, request_id: str) -> Reply:
    """Read an answer. `request_id` is ours, and stands unless the runtime tells its own.

    4xx, 5xx: the runtime's body, or one of OpenAI's shape around whatever it said. 2xx: its JSON object; with an
    `error` inside it is a failure with that error's code. Anything else is INTERNAL_ERROR.
    """
    request_id = answer.headers.get("x-request-id") or request_id
    if answer.status >= 400:  # noqa: PLR2004 - HTTP: client and server errors
        body = one_ascii_line(answer.body)
        if body is None or not _is_json(body):
            body = _error_body(answer)
        return Reply(status=answer.status, body=body, request_id=request_id)
    if answer.status >= 300:  # noqa: PLR2004 - HTTP: redirects
        place = answer.headers.get("location", "nowhere")[:_SHOWN_CHARACTERS]
        return _broken(f"the runtime redirects to {place}: set the runtime's URL to the place itself", request_id)
    body = one_ascii_line(answer.body)
    peeked = _peek_at(body) if body is not None else None
    if body is None or peeked is None:
        return _broken(f"the runtime answered {answer.status} without a JSON object: {_shown(answer.body)}", request_id)
    if not isinstance(peeked.error, msgspec.UnsetType) and bytes(peeked.error) != b"null":
        return Reply(status=_status_of(bytes(peeked.error)), body=body, request_id=request_id)
    usage = Usage() if isinstance(peeked.usage, msgspec.UnsetType) else usage_of(bytes(peeked.usage))
    return Reply(status=answer.status, body=body, request_id=request_id, usage=usage)


def one_ascii_line(raw: bytes) -> bytes | None:
    r"""Give the same JSON on one line in ASCII, None if it is no UTF-8. Numbers, order and repeated keys stay.

    In JSON a raw line end can only be white space and a character beyond ASCII can only be in a string, so a blank
    and a `\u` escape mean the same.
    """
    if raw.isascii():
        return raw.translate(_LINE_ENDS) if b"\n" in raw or b"\r" in raw else raw
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    escaped = _NOT_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], text)
    return escaped.encode("ascii").translate(_LINE_ENDS)


def usage_of(raw: bytes) -> Usage:
    """Read a `usage` of chat, completions, embeddings or responses. Whatever makes no sense counts as zero."""
    try:
        usage = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return Usage()
    if not isinstance(usage, dict):
        return Usage()
    total_input = _count(usage, "prompt_tokens") or _count(usage, "input_tokens")
    total_output = _count(usage, "completion_tokens") or _count(usage, "output_tokens")
    read = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    written = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    return Usage(
        input_tokens=total_input,
        cached_tokens=_count(read, "cached_tokens"),
        output_tokens=total_output,
        reasoning_tokens=_count(written, "reasoning_tokens"),
        total_tokens=_count(usage, "total_tokens") or total_input + total_output,
    )


def _count(counts: Any, key: str) -> int:
    value = counts.get(key) if isinstance(counts, dict) else None
    # `type`, because True is an int; bounded, because a nonsense number must not overflow a column.
    return value if type(value) is int and 0 <= value < _MAX_COUNT else 0


def _peek_at(body: bytes) -> _Peek | None:
    try:
        return _peek.decode(body)
    except msgspec.ValidationError:
        return None  # JSON, but no object
    except (msgspec.DecodeError, RecursionError):
        return _peek_slowly(body)


def _peek_slowly(body: bytes) -> _Peek | None:
    r"""Read what msgspec refuses though it is JSON: a lone surrogate (`"\ud800"`), which a model may well say."""
    try:
        value = json.loads(body, parse_int=_short_int, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    usage, error = (json.dumps(value.get(key)).encode() for key in ("usage", "error"))
    return _Peek(usage=msgspec.Raw(usage), error=msgspec.Raw(error))


def _is_json(body: bytes) -> bool:
    try:
        _check.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return _peek_slowly(body) is not None
    return True


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) <= len(str(_MAX_COUNT)) else 0  # Python refuses to read thousands of digits


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _status_of(error: bytes) -> int:
    """The HTTP status that an error object inside a 200 stands for: its own `code` where that is one."""
    try:
        code = msgspec.json.decode(error, type=dict[str, Any]).get("code")
    except (msgspec.MsgspecError, RecursionError):
        return 500
    return code if type(code) is int and 400 <= code <= 599 else 500  # noqa: PLR2004 - HTTP: client and server errors


def _broken(message: str, request_id: str) -> Reply:
    return Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, message), request_id=request_id)


def _error_body(answer: Answer) -> bytes:
    message = f"the runtime answered {answer.status}: {_shown(answer.body)}"
    error = {"message": message, "type": "runtime_error", "param": None, "code": None}
    return json.dumps({"error": error}).encode()


def _shown(body: bytes) -> str:
    text = body[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace").strip()
    return text[:_SHOWN_CHARACTERS] or "(an empty body)"
