"""The models that live workers serve, in pools the caller may use."""

from datetime import timedelta

from app.db import worker_views as workers_sql
from app.domain.errors import NotFound
from app.schemas.models import ModelObject
from app.services.context import Caller, Yard
from app.services.eligibility import servings


def listed(yard: Yard, caller: Caller) -> list[ModelObject]:
    """List models by name, each once."""
    found: dict[str, ModelObject] = {}
    with yard.store.read() as session:
        since = yard.store.now(session) - timedelta(seconds=yard.timing.grace_seconds)
        workers = workers_sql.serving(session, caller.org_id, since)
    for worker in workers:
        for serving in servings(worker):
            for name in serving.models if serving.alive else ():
                known = found.get(name)
                pools = {worker.pool, *(known.gpuyard_pools if known is not None else ())}
                created = min(int(worker.created_at.timestamp()), known.created if known is not None else 2**62)
                found[name] = ModelObject(id=name, created=created, owned_by=serving.kind, gpuyard_pools=sorted(pools))
    return [found[name] for name in sorted(found)]


def retrieve(yard: Yard, caller: Caller, model_id: str) -> ModelObject:
    """Show a model. Raises NotFound, naming what there is."""
    models = {model.id: model for model in listed(yard, caller)}
    if model_id not in models:
        there = ", ".join(sorted(models)[:20]) or "none: no worker with a live runtime"
        message = f"The model {model_id!r} is served by no live worker. There are: {there}"
        raise NotFound(message, code="model_not_found", param="model")
    return models[model_id]
