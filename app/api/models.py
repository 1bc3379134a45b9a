"""`/v1/models`, and the live endpoints of OpenAI that this server does not have."""

from fastapi import APIRouter

from app.api.guarding import GuardedRoute, TheCaller, TheYard
from app.domain.errors import NotFound
from app.schemas.listing import Listing
from app.schemas.models import ModelObject
from app.services import models

router = APIRouter(route_class=GuardedRoute, tags=["models"])


@router.get("/v1/models")
def listed(yard: TheYard, caller: TheCaller) -> Listing[ModelObject]:
    """List the models that live workers serve."""
    return Listing(data=models.listed(yard, caller))


@router.get("/v1/models/{model_id:path}")
def retrieve(yard: TheYard, caller: TheCaller, model_id: str) -> ModelObject:
    """Show a model."""
    return models.retrieve(yard, caller, model_id)


@router.post("/v1/chat/completions", include_in_schema=False)
@router.post("/v1/completions", include_in_schema=False)
@router.post("/v1/embeddings", include_in_schema=False)
@router.post("/v1/responses", include_in_schema=False)
async def live() -> None:
    """Say what this server is, to somebody who took it for another one."""
    raise NotFound(
        "This server runs batches: upload a JSONL file with client.files.create(purpose='batch') and send it with "
        "client.batches.create(). It answers no live requests.",
        code="batches_only",
    )
