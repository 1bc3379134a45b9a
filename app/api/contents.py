"""Sending a file: in pieces, resumable by `Range` and a strong `ETag`, never re-encoded (OPENAI_CONTRACT 1.9)."""

import re
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import quote

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from app.api.errors import envelope
from app.api.threads import CONTENTS
from app.blobs.store import BlobStore
from app.domain.byte_ranges import Unsatisfiable, parse_range
from app.services.files import Content

PIECE_BYTES = 256 * 1024
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]")


def send(blobs: BlobStore, content: Content, request: Request) -> Response:
    """Answer a GET or HEAD. Opens the content before it answers, so that a missing one is an error and no cut body."""
    etag = f'"{content.sha256}"'
    headers = {
        "etag": etag,
        "accept-ranges": "bytes",
        "content-encoding": "identity",
        "content-disposition": disposition(content.filename),
        "x-content-type-options": "nosniff",
    }
    if etag in entity_tags(request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    try:
        asked = parse_range(_range_header(request, etag), content.bytes)
    except Unsatisfiable:
        message = f"The file has {content.bytes} bytes, and none in the range that was asked for."
        size = {"content-range": f"bytes */{content.bytes}"}
        return envelope(416, message, code="range_not_satisfiable", headers=size)
    start, end = asked or (0, content.bytes)
    headers["content-length"] = str(end - start)
    if asked is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{content.bytes}"
    status = 200 if asked is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type="application/octet-stream")
    file = blobs.open(content.blob_key, start, end)
    return StreamingResponse(CONTENTS.each(_pieces(file)), status, headers, media_type="application/octet-stream")


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


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece
