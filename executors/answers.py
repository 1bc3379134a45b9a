"""From a runtime's HTTP answer to a row's Reply (B-14).

A body that is JSON passes through byte for byte. Only what would break the output file is changed, and without a
loss: every reply is one line, in ASCII (a raw U+2028 makes `str.splitlines` see two lines), and a failure has an
`error` object (error_bodies).
"""

import json
import re
import sys
from typing import NoReturn

import msgspec

from app.domain.quoting import printable
from app.domain.rows import Blame, Reply, Row, RowError, RowErrorCode, Usage
from executors.asked import PEEKS, Peek
from executors.error_bodies import SHOWN_CHARACTERS, in_openais_shape, shown, status_inside
from executors.http_wire import Answer
from executors.usage import MAX_COUNT, usage_of

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_NOT_DIGITS = bytes(set(range(256)) - set(b"0123456789"))
MAX_DIGITS = sys.int_info.default_max_str_digits
_CHARSET = re.compile(r"charset=\"?([^;\"\s]+)", re.IGNORECASE)
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_FRAME = b"data:"

_peeks = {endpoint: msgspec.json.Decoder(kind) for endpoint, kind in PEEKS.items()}
_plain_peek = msgspec.json.Decoder(Peek)
_check = msgspec.json.Decoder(msgspec.Raw)


class _OtherShape(Peek):
    """JSON with fields of another kind than OpenAI's."""

    why: str = ""

    @property
    def is_void(self) -> bool:
        """It is the answer to something else."""
        return True

    def fault(self, row: Row) -> str:
        return f"the runtime's answer has not the shape of {row.endpoint}: {self.why}"


def reply_of(answer: Answer, *, request_id: str, row: Row | None = None) -> Reply:
    """Read an answer. `request_id` is ours, and stands unless the runtime tells its own.

    4xx, 5xx: the runtime's status and body. 2xx: its JSON object; with an `error` inside it is a failure with that
    error's code. What the runtime broke off is RUNTIME_UNAVAILABLE and blames nobody. Anything else, and what is no
    answer to what `row` asked, is INTERNAL_ERROR; it blames nobody where it is no answer of the endpoint at all.
    """
    request_id = answer.headers.get("x-request-id") or request_id
    if answer.status >= 400:  # noqa: PLR2004 - HTTP: client and server errors
        return _failure(answer.status, answer.body, request_id)
    if answer.status >= 300:  # noqa: PLR2004 - HTTP: redirects
        return _redirected(answer, request_id)
    body = one_ascii_line(answer.body)
    peeked = _peek_at(body, row) if body is not None else None
    if body is None or peeked is None:
        return _no_object(answer, request_id, is_text=body is not None)
    if status := _failed_inside(peeked):
        return _failure(status, body, request_id)
    if peeked.was_broken_off:
        # Not the row's doing, and no whole answer: as if the connection had been cut (B-14).
        error = RowError(RowErrorCode.RUNTIME_UNAVAILABLE, 'the runtime broke the row off (finish_reason "abort")')
        return Reply(error=error, request_id=request_id, blame=Blame.UNCLEAR)
    fault = peeked.fault(row) if row is not None else None
    if fault is None and has_endless_number(body):
        fault = f"the runtime's answer has a number of more than {MAX_DIGITS} digits"
    if fault is not None:
        return _broken(fault, request_id, Blame.UNCLEAR if peeked.is_void else Blame.ROW)
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


def has_endless_number(body: bytes) -> bool:
    """Whether JSON holds an integer that Python, and so most clients, refuses to read."""
    if not body[MAX_DIGITS::MAX_DIGITS].translate(None, _NOT_DIGITS):
        return False  # a longer run of digits would show at one of these places
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return True
    return False


def _charset(answer: Answer) -> str:
    """Name the encoding of a text that is not UTF-8."""
    for mark, name in _MARKS.items():
        if answer.body.startswith(mark):
            return name
    named = _CHARSET.search(answer.headers.get("content-type", ""))
    return printable(named[1])[:100] if named and named[1].lower() != "utf-8" else "an encoding it does not name"


def _failure(status: int, raw: bytes, request_id: str) -> Reply:
    body = one_ascii_line(raw)
    json_body = body if body is not None and _is_json(body) and not has_endless_number(body) else None
    return Reply(status=status, body=in_openais_shape(status, json_body, raw), request_id=request_id)


def _redirected(answer: Answer, request_id: str) -> Reply:
    """Name a redirect that is not followed: a proxy sends it for a runtime that is away, or that is elsewhere."""
    place = printable(answer.headers.get("location", "nowhere"))[:SHOWN_CHARACTERS]
    said = f"the runtime redirects to {place}: set the runtime's URL to the place itself"
    error = RowError(RowErrorCode.RUNTIME_UNAVAILABLE, said)
    return Reply(error=error, request_id=request_id, blame=Blame.RUNTIME)


def _no_object(answer: Answer, request_id: str, *, is_text: bool) -> Reply:
    """Judge a 2xx without a JSON object. A stream may hold the engine's last words, with `[DONE]` after them."""
    if not is_text:
        return _broken(f"the runtime's answer is not UTF-8 but {_charset(answer)}", request_id)
    if not answer.body.lstrip().startswith(_FRAME):
        said = f"the runtime answered {answer.status} without a JSON object: {shown(answer.body)}"
        return _broken(said, request_id, Blame.UNCLEAR)
    for line in answer.body.splitlines():
        frame = line.removeprefix(_FRAME).strip()
        peeked = _peek_at(frame, None) if b'"error"' in frame else None
        if (
            peeked
            and not isinstance(peeked.error, msgspec.UnsetType)
            and (status := status_inside(bytes(peeked.error)))
        ):
            return _failure(status, frame, request_id)
    return _broken(f"the runtime answered with a stream, which was not asked for: {shown(answer.body)}", request_id)


def _failed_inside(peeked: Peek) -> int | None:
    return None if isinstance(peeked.error, msgspec.UnsetType) else status_inside(bytes(peeked.error))


def _peek_at(body: bytes, row: Row | None) -> Peek | None:
    decoder = _peeks.get(row.endpoint, _plain_peek) if row is not None else _plain_peek
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        return _peek_at_another_shape(body, str(error))
    except (msgspec.DecodeError, RecursionError):
        plain = _in_plain_words(body)
    if plain is None:
        return None
    try:
        return decoder.decode(plain)
    except msgspec.ValidationError as error:
        return _peek_at_another_shape(plain, str(error))


def _peek_at_another_shape(body: bytes, why: str) -> Peek | None:
    try:
        peeked = _plain_peek.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None  # JSON, but no object
    return _OtherShape(usage=peeked.usage, error=peeked.error, why=why)


def _in_plain_words(body: bytes) -> bytes | None:
    r"""Say in msgspec's JSON what it refuses though it is JSON: a lone surrogate, which a model may well say."""
    try:
        value = json.loads(body, parse_int=_short_int, parse_float=lambda _: 0.0, parse_constant=_refuse)
        plain = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        _check.decode(plain)
    except (ValueError, RecursionError):
        return None
    return plain


def _is_json(body: bytes) -> bool:
    try:
        _check.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return _in_plain_words(body) is not None
    return True


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) <= len(str(MAX_COUNT)) else 0  # Python refuses to read thousands of digits


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _broken(message: str, request_id: str, blame: Blame = Blame.ROW) -> Reply:
    return Reply(error=RowError(RowErrorCode.INTERNAL_ERROR, message), request_id=request_id, blame=blame)
