"""Sending a file: in pieces, resumable by `Range` and a strong `ETag`, never re-encoded (OPENAI_CONTRACT 1.9)."""

import re
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response

from app.api.errors import envelope
from app.api.in_flight import Download
from app.api.threads import Threads
from app.domain.byte_ranges import Unsatisfiable, parse_range
from app.services import files
from app.services.context import Yard
from app.services.files import Content

# What a route that sends a content reads by itself, for the API's own description.
DOWNLOAD = {
    "parameters": [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
        for name in ("range", "if-range", "if-none-match")
    ]
}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The whole file.", "content": _BYTES},
    206: {"description": "The part that `range` asks for.", "content": _BYTES},
    304: {"description": "The caller has it."},
}
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]")


def send(yard: Yard, content: Content, request: Request, threads: Threads) -> Response:
    """Answer a GET or HEAD; what is behind the first piece is read in `threads`.

    Reads before it answers, so that what cannot be read is an error and no cut body.
    """
    file, size = content.file, content.recorded.bytes
    etag = f'"{content.sha256}"'
    headers = {
        "etag": etag,
        "accept-ranges": "bytes",
        "content-encoding": "identity",
        "content-disposition": disposition(file.filename),
        "x-content-type-options": "nosniff",
    }
    if {etag, "*"} & entity_tags(request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    try:
        asked = parse_range(_range_header(request, etag), size)
    except Unsatisfiable:
        message = f"The file has {size} bytes, and none in the range that was asked for."
        return envelope(416, message, code="range_not_satisfiable", headers={"content-range": f"bytes */{size}"})
    start, end = asked or (0, size)
    files.check_size(yard, content, end)
    headers["content-length"] = str(end - start)
    if asked is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    status = 200 if asked is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type="application/octet-stream")
    found = files.pieces(yard, content, start, end)
    return Download(found, status, headers, media_type="application/octet-stream", threads=threads)


def disposition(filename: str) -> str:
    """Write a `Content-Disposition` that no file name can break out of."""
    plain = _UNSAFE.sub("_", filename)[:200] or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='', errors='replace')}"


def entity_tags(header: str | None) -> set[str]:
    """Read a list of entity tags, weak or not, as `If-None-Match` has them."""
    return {tag.strip().removeprefix("W/") for tag in header.split(",")} if header else set()


def _range_header(request: Request, etag: str) -> str | None:
    """Give the `Range`, unless `If-Range` says that the caller holds a part of something else."""
    held = request.headers.get("if-range")
    return request.headers.get("range") if held is None or held.strip() == etag else None
