"""The models that live workers serve, in pools the caller may use."""

from collections.abc import Iterator

from app.db import worker_views as workers_sql
from app.db.tables import Worker
from app.domain.eligibility import Serving
from app.domain.errors import NotFound
from app.schemas.models import ModelObject
from app.services.context import Caller, Yard
from app.services.eligibility import servings, told

SHOWN = 20


def listed(yard: Yard, caller: Caller) -> list[ModelObject]:
    """List models by name, each once, with every name that a row may give them."""
    found: dict[str, ModelObject] = {}
    for worker, serving in _live(yard, caller):
        for name in serving.models:
            found[name] = _model(name, worker, serving, found.get(name))
    return [found[name] for name in sorted(found)]


def retrieve(yard: Yard, caller: Caller, model_id: str) -> ModelObject:
    """Show a model under the name it is asked for, which may be one that nobody lists (Ollama: `x` is `x:latest`).

    Raises NotFound, naming what there is.
    """
    found: ModelObject | None = None
    names: set[str] = set()
    for worker, serving in _live(yard, caller):
        names |= serving.models
        if serving.serves(model_id):
            found = _model(model_id, worker, serving, found)
    if found is None:
        there = ", ".join(sorted(names)[:SHOWN]) or "none: no worker with a live runtime"
        message = f"The model {model_id!r} is served by no live worker. There are: {there}"
        raise NotFound(message, code="model_not_found", param="model")
    return found


def _live(yard: Yard, caller: Caller) -> Iterator[tuple[Worker, Serving]]:
    """Give the live runtimes of the workers that were heard from within the grace they were told."""
    with yard.store.read() as session:
        now = yard.store.now(session)
        workers = workers_sql.serving(session, caller.org_id)
    for worker in workers:
        if not told(worker, yard.timing).unreachable(now - worker.last_seen_at):
            yield from ((worker, serving) for serving in servings(worker) if serving.alive)


def _model(name: str, worker: Worker, serving: Serving, known: ModelObject | None) -> ModelObject:
    """Show a model that one more runtime serves. The first one says since when there is one, and what it is."""
    if known is None:
        created = int(worker.created_at.timestamp())
        return ModelObject(id=name, created=created, owned_by=serving.kind, gpuyard_pools=[worker.pool])
    return known.model_copy(update={"gpuyard_pools": sorted({worker.pool, *known.gpuyard_pools})})
