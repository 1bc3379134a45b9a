r"""A hand-in's content: finished rows, one a line, as a worker sends them and a segment's blob keeps them (PROTOCOL 5).

A line is `<row>\t<c|f>\t<output line>\n`: the row's number in its batch (from 0), whether it counts as completed or
as failed, and the very line of the output or error file (`app.domain.outputs`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from app.domain.input_lines import parse_json
from app.domain.lines import read_lines
from app.domain.rows import Reply

MAX_LINE_BYTES = 64 * 1024 * 1024
_STRAY = "blank lines, byte order marks and other line ends have no place here"
_FLAGS = {b"c": True, b"f": False}
_MAX_ROW_DIGITS = 12
_FIRST_ERROR_STATUS = 400


class HandInError(ValueError):
    """The content is no hand-in. Its sender is broken or hostile: refuse the whole, nothing of it is stored."""


class HandInLine(NamedTuple):
    """One finished row. `start` and `end` are where the output line stands in the content, its newline included."""

    row: int
    completed: bool
    start: int
    end: int
    line: bytes


class _Response(msgspec.Struct):
    status_code: int
    request_id: str | None
    body: msgspec.Raw


class _Error(msgspec.Struct):
    code: str
    message: str


class _OutputLine(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    custom_id: str | None
    response: _Response | None
    error: _Error | None


_output_line = msgspec.json.Decoder(_OutputLine)


def write_line(row: int, reply: Reply, line: bytes) -> bytes:
    """Write one finished row; `line` is its output line without a newline."""
    return b"%d\t%s\t%s\n" % (row, b"c" if reply.ok else b"f", line)


def read_hand_in(chunks: Iterable[bytes], *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[HandInLine]:
    """Read and check a hand-in, in flat memory.

    Raises HandInError at the first line that is not of the form above, that is not ASCII, whose flag does not say what
    its response says, or whose row stood before. Whether the rows belong to the leases is the caller's to check.
    """
    seen: set[int] = set()
    position, total = 0, _Total(chunks)
    for line in read_lines(total, max_line_bytes=max_line_bytes):
        content = line.content
        if content is None:
            raise HandInError(f"line {line.number} has more than {max_line_bytes} bytes")
        if line.start != position or line.end != position + len(content) + 1:
            raise HandInError(f"line {line.number}: {_STRAY}")
        number, _, rest = content.partition(b"\t")
        flag, _, output = rest.partition(b"\t")
        completed = _FLAGS.get(flag)
        if completed is None or not number.isdigit() or len(number) > _MAX_ROW_DIGITS:
            raise HandInError(f"line {line.number} does not begin with a row's number and c or f")
        row = int(number)
        if row in seen:
            raise HandInError(f"line {line.number}: row {row} stood before")
        seen.add(row)
        _check_output(line.number, completed, output)
        position = line.end
        yield HandInLine(row, completed, line.end - len(output) - 1, line.end, output)
    if position != total.bytes:
        raise HandInError(f"after the last line: {_STRAY}")


class _Total:
    """Counts the bytes of chunks as they pass."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.bytes = 0
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.bytes += len(chunk)
            yield chunk


def _check_output(number: int, completed: bool, output: bytes) -> None:
    if not output.isascii():
        raise HandInError(f"line {number} is not ASCII")
    try:
        status = _status(output)
    except RecursionError:
        # Some runtime's answer is nested deeper than this process reads. The line is kept: to refuse it would keep
        # its worker from ever handing in, and nobody here reads a body.
        return
    except ValueError as error:
        raise HandInError(f"line {number} holds no output line: {error}") from error
    if completed != (status is not None and status < _FIRST_ERROR_STATUS):
        raise HandInError(f"line {number}: its flag and its response disagree")


def _status(output: bytes) -> int | None:
    """Give the response's status, None for a row that has an error instead. Raises ValueError for another shape."""
    try:
        line = _output_line.decode(output)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # msgspec refuses half of a surrogate pair, which a runtime that cuts an answer inside an emoji may send.
        line = msgspec.convert(_without_body(parse_json(output)), _OutputLine)
    if (line.response is None) == (line.error is None):
        raise ValueError("exactly one of response and error must be null")
    return line.response.status_code if line.response else None


def _without_body(value: object) -> object:
    if isinstance(value, dict) and isinstance(value.get("response"), dict) and "body" in value["response"]:
        return {**value, "response": {**value["response"], "body": msgspec.Raw(b"null")}}
    return value
