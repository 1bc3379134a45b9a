"""Models on OpenAI's wire: GET /v1/models -> Listing of ModelObject, GET /v1/models/{id} -> ModelObject."""

from typing import Literal

from app.schemas.wire import Wire


class ModelObject(Wire):
    """A model that some live worker serves. `gpuyard_pools` are the pools to send a batch for it to."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    gpuyard_pools: list[str]
