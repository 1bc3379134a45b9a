"""Taking an upload in: two pieces in memory at most, hashed on the way, written in threads (PERFORMANCE 6)."""

import asyncio

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from app.api.errors import refusal_of
from app.api.in_flight import InFlight, UnderWay
from app.api.multipart import UploadForm, too_large
from app.api.pouring import pour
from app.api.threads import CONTENTS
from app.blobs.store import BlobWriter
from app.domain.errors import BadRequest
from app.schemas.files import MAX_EXPIRY_SECONDS, MIN_EXPIRY_SECONDS, UPLOAD_PURPOSES, FileObject
from app.services import files
from app.services.context import Caller, Yard
from app.services.files import Upload

_FORM_BYTES = 64 * 1024
"""What a form may have around its file."""


class _Fields(BaseModel):
    """The small parts of an upload's form, by their names on the wire."""

    purpose: str
    anchor: str | None = Field(default=None, alias="expires_after[anchor]", pattern="^created_at$")
    seconds: int | None = Field(
        default=None, alias="expires_after[seconds]", ge=MIN_EXPIRY_SECONDS, le=MAX_EXPIRY_SECONDS
    )


async def receive(yard: Yard, caller: Caller, in_flight: InFlight, request: Request) -> FileObject:
    """Read an upload and make its file. Whatever goes wrong, no file and no content stays."""
    with in_flight.hold(UnderWay.UPLOADS, caller.org_id):
        return await _receive(yard, caller, request)


async def _receive(yard: Yard, caller: Caller, request: Request) -> FileObject:
    limit = yard.limits.max_file_bytes
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit + _FORM_BYTES:
        raise too_large(limit)
    pieces: list[bytes] = []
    form = UploadForm(request.headers.get("content-type", ""), pieces.append, max_bytes=limit)
    key = await run_in_threadpool(files.begin, yard, caller)
    writer = await CONTENTS.run(yard.blobs.writer, key)
    try:
        await pour(request.stream(), lambda data: _work(form, pieces, writer, data), CONTENTS)
        upload = _checked(form)
        stored = await CONTENTS.run(writer.commit)
        return await run_in_threadpool(files.create, yard, caller, key, stored, upload)
    except BaseException:
        # Also when the client went away: the task is cancelled, and its clearing up must not be.
        await asyncio.shield(CONTENTS.run(_undo, yard, key, writer))
        raise


def _work(form: UploadForm, pieces: list[bytes], writer: BlobWriter, data: bytes) -> None:
    form.feed(data)
    # The parser cuts at every byte that could begin a boundary; one write for all of them.
    writer.write(b"".join(pieces))
    pieces.clear()


def _undo(yard: Yard, key: str, writer: BlobWriter) -> None:
    writer.abort()
    files.forget(yard, key)


def _checked(form: UploadForm) -> Upload:
    if form.filename is None:
        raise BadRequest("Missing required parameter: 'file'.", code="missing_required_parameter", param="file")
    if not form.complete:
        raise BadRequest("the form ends before its last boundary", code="invalid_body")
    try:
        fields = _Fields.model_validate(form.fields)
    except ValidationError as error:
        raise refusal_of(dict(error.errors()[0])) from error
    if fields.purpose not in UPLOAD_PURPOSES:
        message = f"Invalid value for 'purpose': {fields.purpose!r} is none of {', '.join(UPLOAD_PURPOSES)}."
        raise BadRequest(message, code="invalid_value", param="purpose")
    if (fields.anchor is None) != (fields.seconds is None):
        missing = "anchor" if fields.anchor is None else "seconds"
        raise BadRequest(
            f"Missing required parameter: 'expires_after.{missing}'.",
            code="missing_required_parameter",
            param="expires_after",
        )
    return Upload(purpose=fields.purpose, filename=form.filename, expires_seconds=fields.seconds)
