"""`/v1/files` (OPENAI_CONTRACT 1.1, 1.8, 1.9)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from app.api import contents, uploads
from app.api.guarding import GuardedRoute, StreamedRoute, TheCaller, TheYard
from app.schemas.files import FileDeleted, FileObject
from app.schemas.listing import Listing
from app.services import files

router = APIRouter(route_class=GuardedRoute, tags=["files"])
upload_router = APIRouter(route_class=StreamedRoute, tags=["files"])

Limit = Annotated[int, Query(ge=1, le=files.MAX_FILES_LISTED)]


@upload_router.post("/v1/files")
async def upload(yard: TheYard, caller: TheCaller, request: Request) -> FileObject:
    """Take a file in."""
    return await uploads.receive(yard, caller, request)


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


@router.get("/v1/files/{file_id}/content", response_class=Response)
@router.head("/v1/files/{file_id}/content", response_class=Response, include_in_schema=False)
def content(yard: TheYard, caller: TheCaller, request: Request, file_id: str) -> Response:
    """Send a file's bytes."""
    return contents.send(yard.blobs, files.content(yard, caller, file_id), request)
