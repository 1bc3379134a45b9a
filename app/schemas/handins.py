r"""A hand-in's content: finished rows, one a line, as a worker sends them and a segment's blob keeps them (PROTOCOL 5).

A line is `<row>\t<c|f>\t<output line>\n`: the row's number in its batch (from 0), whether it counts as completed or
as failed, and the very line of the output or error file (`app.domain.outputs`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from app.domain.input_lines import parse_json
from app.domain.outputs import begins_as
from app.domain.rows import Reply

_STRAY = "blank lines, byte order marks and other line ends have no place here"
_FLAGS = {b"c": True, b"f": False}
_MAX_ROW_DIGITS = 12
_FLAG_BYTES = len(b"\t?\t")
_HEAD_BYTES = _MAX_ROW_DIGITS + _FLAG_BYTES
_FIRST_ERROR_STATUS = 400


class HandInError(ValueError):
    """The content is no hand-in. Its sender is broken or hostile: refuse the whole, nothing of it is stored."""


class HandInLine(NamedTuple):
    """One finished row. `start` and `end` are where the output line stands in the content, its newline included."""

    row: int
    completed: bool
    start: int
    end: int


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


def output_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the output lines of a hand-in that was checked, with their newline; one longer than a piece in parts."""
    head, is_within = b"", False
    for piece in pieces:
        content = head + piece
        head, at = b"", 0
        while at < len(content):
            if not is_within:
                tab = content.find(b"\t", at)
                if tab < 0 or tab + _FLAG_BYTES > len(content):
                    head = content[at:]
                    break
                at = tab + _FLAG_BYTES
            end = content.find(b"\n", at) + 1
            yield content[at : end or len(content)]
            is_within, at = end == 0, end or len(content)


def read_hand_in(batch_id: str, chunks: Iterable[bytes]) -> Iterator[HandInLine]:
    """Read and check a whole hand-in. Raises as `HandInReader` does."""
    reader = HandInReader(batch_id)
    for chunk in chunks:
        yield from reader.feed(chunk)
    reader.close()


class HandInReader:
    """Reads and checks a hand-in that comes in pieces; what it keeps of the bytes is the line that has not ended.

    Raises HandInError at the first line that is not of the form above, that is not ASCII, that does not begin as the
    output line of its row, whose flag does not say what its response says, or whose row stood before. Whether the rows
    belong to the leases is the caller's to check. `rows` says of each row so far whether it counts as completed.
    """

    def __init__(self, batch_id: str, *, max_rows: int | None = None) -> None:
        self._batch_id = batch_id
        self.rows: dict[int, bool] = {}
        self._max_rows = max_rows
        self._number = self._position = 0
        self._held = bytearray()

    def feed(self, piece: bytes) -> list[HandInLine]:
        """Take the next bytes, and return the lines that end in them."""
        ended: list[bytes | bytearray] = [*piece.split(b"\n")]
        rest = ended.pop()
        if ended and self._held:
            self._held += ended[0]
            ended[0], self._held = self._held, bytearray()
        self._held += rest
        return [self._line(line) for line in ended]

    def close(self) -> None:
        """Check that the last line has ended."""
        if self._held:
            raise HandInError(f"after the last line: {_STRAY}")

    def _line(self, line: bytes | bytearray) -> HandInLine:
        self._number += 1
        if len(self.rows) == self._max_rows:
            raise HandInError(f"line {self._number}: more rows than the header says")
        number, _, rest = line[:_HEAD_BYTES].partition(b"\t")
        flag, tab, _ = rest.partition(b"\t")
        completed = _FLAGS.get(bytes(flag)) if tab else None
        if completed is None or not number.isdigit() or len(number) > _MAX_ROW_DIGITS:
            raise HandInError(f"line {self._number} does not begin with a row's number and c or f")
        row = int(number)
        if row in self.rows:
            raise HandInError(f"line {self._number}: row {row} stood before")
        if not line.isascii():
            raise HandInError(f"line {self._number} is not ASCII")
        if line.endswith(b"\r"):
            raise HandInError(f"line {self._number}: {_STRAY}")
        head = len(number) + len(flag) + 2
        if not begins_as(line, head, self._batch_id, row):
            raise HandInError(f"line {self._number} does not begin with the id and the custom_id of row {row}")
        # A view: a copy of a long answer would double what it takes.
        _check_output(self._number, completed, memoryview(line)[head:])
        self.rows[row] = completed
        start, self._position = self._position + head, self._position + len(line) + 1
        return HandInLine(row, completed, start, self._position)


def _check_output(number: int, completed: bool, output: memoryview) -> None:
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


def _status(output: memoryview) -> int | None:
    """Give the response's status, None for a row that has an error instead. Raises ValueError for another shape."""
    try:
        line = _output_line.decode(output)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # msgspec refuses half of a surrogate pair, which a runtime that cuts an answer inside an emoji may send.
        line = msgspec.convert(_without_body(parse_json(bytes(output))), _OutputLine)
    if (line.response is None) == (line.error is None):
        raise ValueError("exactly one of response and error must be null")
    return line.response.status_code if line.response else None


def _without_body(value: object) -> object:
    if isinstance(value, dict) and isinstance(value.get("response"), dict) and "body" in value["response"]:
        return {**value, "response": {**value["response"], "body": msgspec.Raw(b"null")}}
    return value
