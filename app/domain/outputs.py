"""Lines of a batch's output and error files (OPENAI_CONTRACT 1.6, 1.9; DESIGN 6 "A row's error has one shape")."""

import hashlib
import json
from json.encoder import encode_basestring_ascii as _quoted

from app.domain.rows import Reply

_ID_START = len('{"id":"batch_req_') + 32 + len('","custom_id":')
_ID_END = b',"response":'
"""No id holds it: the quotes within one are escaped."""
NO_ID = b"null"
"""What `quoted_id` returns for a row whose line could not be read."""


def line_start(batch_id: str, row: int) -> bytes:
    """Give how the line of a row begins: no other row's line does."""
    return f'{{"id":"batch_req_{_digest(batch_id, row)}"'.encode("ascii")


def begins_as(content: bytes | bytearray, at: int, batch_id: str, row: int) -> bool:
    """Tell whether there is at `at` what `output_line` writes of a row, up to its response."""
    start = line_start(batch_id, row) + b',"custom_id":'
    return content.startswith(start, at) and content.find(_ID_END, at) > 0


def quoted_id(line: bytes) -> bytes:
    """Return the custom_id of a line as it is written there: of equal ids it is equal."""
    return line[_ID_START : line.index(_ID_END, _ID_START)]


def quoted(custom_id: str) -> bytes:
    """Write a custom_id as a line has it."""
    return _quoted(custom_id).encode("ascii")


def _digest(batch_id: str, row: int) -> str:
    return hashlib.sha256(f"{batch_id}:{row}".encode()).hexdigest()[:32]


def output_line(batch_id: str, row: int, custom_id: str | None, reply: Reply) -> bytes:
    """Write one row's line, without a newline.

    The line is ASCII, because the SDK's own line splitter cuts at a raw U+2028. `reply.body` goes in as it is: it is
    one JSON value in one line of ASCII already. What was left out of the row's body is told beside its answer, in
    `response.gpuyard`. `custom_id` is None only for a row whose line could not be read. The ids follow from the batch
    and the row, so a row that runs again after a lost worker keeps its ids.
    """
    digest = _digest(batch_id, row)
    head = f'{{"id":"batch_req_{digest}","custom_id":{"null" if custom_id is None else _quoted(custom_id)}'
    if reply.error is not None:
        error = json.dumps({"code": reply.error.code.value, "message": reply.error.message}, separators=(",", ":"))
        return f'{head},"response":null,"error":{error}}}'.encode("ascii")
    if reply.status is None or reply.body is None:
        raise ValueError(f"row {row} of {batch_id} has neither an answer nor an error")
    request_id = _quoted(reply.request_id or f"req_{digest}")
    start = f'{head},"response":{{"status_code":{reply.status},"request_id":{request_id},"body":'
    end = '},"error":null}'
    if reply.dropped:
        end = f',"gpuyard":{json.dumps({"dropped_parameters": reply.dropped}, separators=(",", ":"))}{end}'
    return b"".join((start.encode("ascii"), reply.body, end.encode("ascii")))
