"""`/`: the page for people. Its files are open to everybody and tell nothing; what they show they ask the API for."""

from fastapi import APIRouter, Request, Response

from app.api.contents import entity_tags
from app.api.guarding import GuardedRoute
from app.dashboard.assets import HEADERS, INDEX, all_assets
from app.domain.errors import NotFound

# Not in the OpenAPI document: it is about the API.
router = APIRouter(route_class=GuardedRoute, include_in_schema=False)


@router.get("/")
async def index(request: Request) -> Response:
    """Send the page."""
    return _send(request, INDEX)


@router.get("/page/{name}")
async def part(request: Request, name: str) -> Response:
    """Send a file that the page asks for."""
    return _send(request, name)


def _send(request: Request, name: str) -> Response:
    asset = all_assets().get(name)
    if asset is None:
        raise NotFound("the page has no file of that name", code="not_found")
    headers = HEADERS | {"etag": asset.etag}
    if asset.etag in entity_tags(request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
