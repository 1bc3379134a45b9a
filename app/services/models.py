"""The models that live workers serve, in pools the caller may use; and asking these workers for them again."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from sqlmodel import Session

from app.db import batches as batches_sql
from app.db import jobs as jobs_sql
from app.db import locks
from app.db import worker_views as workers_sql
from app.db import workers as pool_sql
from app.db.tables import Worker
from app.domain.eligibility import Serving
from app.domain.errors import NotFound
from app.domain.workers import WorkerState
from app.schemas.models import ModelObject
from app.services.context import Caller, Yard
from app.services.eligibility import servings, told
from app.services.presence import hearing

SHOWN = 20
ANSWER_RENEWALS = 3
"""An answer is waited for as long as so many heartbeats are apart: one brings the request, one the answer."""


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
        heard = hearing(session, yard, {worker.pool for worker in workers}, now)
    for worker in workers:
        if not told(worker, yard.timing).unreachable(heard.silence(worker)):
            yield from ((worker, serving) for serving in servings(worker) if serving.alive)


def _model(name: str, worker: Worker, serving: Serving, known: ModelObject | None) -> ModelObject:
    """Show a model that one more runtime serves. The first one says since when there is one, and what it is."""
    if known is None:
        created = int(worker.created_at.timestamp())
        return ModelObject(id=name, created=created, owned_by=serving.kind, gpuyard_pools=[worker.pool])
    return known.model_copy(update={"gpuyard_pools": sorted({worker.pool, *known.gpuyard_pools})})


def ask_again(yard: Yard, pool: str) -> datetime:
    """Ask the workers of a pool to list their runtimes' models again; gives when."""

    def work(session: Session) -> datetime:
        now = yard.store.now(session)
        asked = [worker.id for worker in pool_sql.of_pool(session, pool) if _can_look(worker)]
        for worker in locks.workers(session, asked).values():
            worker.look_requested_at = now
            session.add(worker)
        return now

    now = yard.store.run(work)
    yard.bells.call(pool)
    return now


def are_settled(session: Session, yard: Yard, workers: Sequence[Worker], asked_at: datetime | None) -> bool:
    """Whether what the workers of a pool serve is as fresh as it gets: all have answered, or had the time to."""
    if asked_at is None:
        return not any(map(_can_look, workers))
    waited = yard.store.now(session) - asked_at
    renewals = (told(worker, yard.timing).renew_seconds for worker in _unanswered(workers, asked_at))
    return all(waited >= timedelta(seconds=ANSWER_RENEWALS * seconds) for seconds in renewals)


def answered(yard: Yard, pools: Collection[str]) -> None:
    """Go on with batches that wait for workers of these pools, where these have all answered."""

    def work(session: Session) -> list[str]:
        ready = [
            batch_id
            for pool in pools
            for batch_id, asked_at in batches_sql.asking(session, pool)
            if not _unanswered(pool_sql.of_pool(session, pool), asked_at)
        ]
        jobs_sql.validate_now(session, ready)
        return ready

    for batch_id in yard.store.run(work):
        yard.bells.control(batch_id, quiet_seconds=0)


def _unanswered(workers: Sequence[Worker], asked_at: datetime) -> list[Worker]:
    return [worker for worker in workers if _can_look(worker) and (worker.looked_at or asked_at) < asked_at]


def _can_look(worker: Worker) -> bool:
    """Whether a worker is there, has runtimes, and knows the request."""
    is_there = worker.offline_at is None and worker.state in {WorkerState.ACTIVE, WorkerState.SETTING_UP}
    return is_there and worker.looked_at is not None and bool(worker.runtimes)
