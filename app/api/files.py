"""`/v1/files` (OPENAI_CONTRACT 1.1, 1.8, 1.9)."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from app.api import contents, uploads
from app.api.contents import CONTENT, DOWNLOAD
from app.api.guarding import GuardedRoute, StreamedRoute, TheCaller, TheInFlight, TheYard
from app.api.in_flight import UnderWay
from app.api.threads import CONTENTS
from app.schemas.files import (
    MAX_EXPIRY_SECONDS,
    MIN_EXPIRY_SECONDS,
    UPLOAD_PURPOSES,
    FileDeleted,
    FileObject,
)
from app.schemas.listing import Listing
from app.services import files

router = APIRouter(route_class=GuardedRoute, tags=["files"])
upload_router = APIRouter(route_class=StreamedRoute, tags=["files"])

Limit = Annotated[int, Query(ge=1, le=files.MAX_FILES_LISTED)]

# What this route reads by itself, for the API's own description.
_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": list(UPLOAD_PURPOSES)},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": MIN_EXPIRY_SECONDS,
            "maximum": MAX_EXPIRY_SECONDS,
        },
    },
}
_UPLOAD = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}


@upload_router.post("/v1/files", openapi_extra=_UPLOAD)
async def upload(yard: TheYard, caller: TheCaller, in_flight: TheInFlight, request: Request) -> FileObject:
    """Take a file in."""
    return await uploads.receive(yard, caller, in_flight, request)


@router.get("/v1/files")
def listed(
    yard: TheYard,
    caller: TheCaller,
    after: str | None = None,
    limit: Limit = files.MAX_FILES_LISTED,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> Listing[FileObject]:
    """List files."""
    return files.listed(yard, caller, after=after, limit=limit, order=order, purpose=purpose)


@router.get("/v1/files/{file_id}")
def retrieve(yard: TheYard, caller: TheCaller, file_id: str) -> FileObject:
    """Show a file."""
    return files.retrieve(yard, caller, file_id)


@router.delete("/v1/files/{file_id}")
def delete(yard: TheYard, caller: TheCaller, file_id: str) -> FileDeleted:
    """Delete a file."""
    return files.delete(yard, caller, file_id)


@router.get("/v1/files/{file_id}/content", response_class=Response, openapi_extra=DOWNLOAD, responses=CONTENT)
@router.head("/v1/files/{file_id}/content", response_class=Response, include_in_schema=False)
async def content(yard: TheYard, caller: TheCaller, in_flight: TheInFlight, request: Request, file_id: str) -> Response:
    """Send a file's bytes."""
    with in_flight.sending(UnderWay.DOWNLOADS, caller.org_id) as sending:
        found = await run_in_threadpool(files.content, yard, caller, file_id)
        return sending.keep(await CONTENTS.run(contents.send, yard, found, request, CONTENTS))
