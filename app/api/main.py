"""The API process: `uvicorn --factory app.api.main:create_app`, or `gpuyard serve`."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from app.api import (
    batches,
    errors,
    events,
    files,
    health,
    metrics,
    models,
    pages,
    polls,
    pools,
    tokens,
    webhooks,
    worker_views,
    workers,
)
from app.api.beats import Beats
from app.api.duties import Duties
from app.api.heads import Heads
from app.api.health import ReadinessLooks
from app.api.in_flight import InFlight
from app.api.listeners import Listeners
from app.api.request_ids import RequestIds
from app.api.streams import Streams
from app.api.threads import CONNECTIONS, USERS
from app.api.timing import Timed
from app.db import restored, schema
from app.db.store import DatabaseUnavailable
from app.schemas.errors import ErrorEnvelope
from app.schemas.pools import NewPool
from app.services import beginnings, content_store
from app.services import tokens as tokens_service
from app.services.context import Yard
from app.services.dispatch import Ringer, publisher
from app.services.opening import close_to_others, open_yard, periods
from app.services.readiness import STAND_IN
from config.pools import PoolSettings
from config.settings import ServerSettings, load

ROUTERS = (
    health.router,
    metrics.router,
    pages.router,
    files.router,
    files.upload_router,
    batches.router,
    events.router,
    models.router,
    pools.router,
    worker_views.router,
    tokens.router,
    webhooks.router,
    workers.router,
    workers.heartbeats,
    polls.router,
    workers.hand_ins,
)
# Every error has one shape. Named as families, they also take the place of the 422 that FastAPI would promise.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorEnvelope, "description": "What was asked cannot be."},
    "5XX": {"model": ErrorEnvelope, "description": "A part is away for the moment, or a bug."},
}
USED_SECONDS = 60
"""`last_used_at` of tokens is stored this often, off the path of their calls."""
_log = logging.getLogger("gpuyard.api")


def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """Build the app. Database and contents are opened when the server starts it, and closed when it stops."""
    found = settings if settings is not None else load(ServerSettings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        USERS.share_with_starlette()
        yard = open_yard(found, connections=CONNECTIONS)
        ringer = Ringer(publisher(found.broker_url.get_secret_value())) if found.broker_url is not None else None
        try:
            await run_in_threadpool(begin, yard, found)
            yard = ringer.start(yard) if ringer is not None else yard
            app.state.listeners = listeners = Listeners(yard.bells)
            app.state.yard = yard = replace(yard, bells=listeners)
            app.state.beats = Beats(yard)
            app.state.in_flight = InFlight(yard.limits.org)
            app.state.readiness = ReadinessLooks()
            app.state.used_tokens = set()
            metrics.show(yard)
            duties = Duties(
                yard,
                periods=periods(found),
                stand_in_seconds=found.stand_in_seconds,
                runner=f"{STAND_IN}{socket.gethostname()}-{os.getpid()}",
            )
            await run_in_threadpool(duties.start)
            app.state.streams = streams = Streams()
            side_work = [
                asyncio.create_task(streams.run(yard)),
                asyncio.create_task(_note_used_tokens(app)),
                asyncio.create_task(listeners.run(yard)),
            ]
            yield
            for task in side_work:
                task.cancel()
            await _note_used_tokens_now(app)
            await run_in_threadpool(duties.stop)
        finally:
            if ringer is not None:
                await run_in_threadpool(ringer.close)
            yard.store.close()

    app = FastAPI(
        title="gpuyard", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False, responses=ERRORS
    )
    app.add_middleware(Heads)
    app.add_middleware(Timed)
    app.add_middleware(RequestIds)
    errors.add_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


def close_listeners(app: FastAPI) -> None:
    """Answer all polls that wait, end all streams, and let no more wait: the process is about to end."""
    for name in ("listeners", "streams"):
        waiting: Listeners | Streams | None = getattr(app.state, name, None)
        if waiting is not None:
            waiting.close()


def begin(yard: Yard, settings: ServerSettings) -> None:
    """Make sure that database and contents are ones to serve.

    Raises SchemaMismatch, whose message names the command to run, and BlobUnavailable for contents of others.
    """
    close_to_others(settings, yard.store)
    schema.check(yard.store, wait_seconds=settings.schema_wait_seconds)
    restored.check(yard.store)
    content_store.settle(yard)
    if settings.bootstrap_token is not None:
        beginnings.first_key(yard, settings.bootstrap_token.get_secret_value())
    if settings.bootstrap_worker_token is not None:
        beginnings.worker_key(yard, settings.bootstrap_worker_token.get_secret_value())
    declared = {name: _declared(name, pool) for name, pool in settings.pools.items()}
    beginnings.declare_pools(yard, declared, default=yard.default_pool)


def _declared(name: str, pool: PoolSettings) -> NewPool:
    """Give what the settings say of a pool, and nothing of what they leave out."""
    said = pool.model_dump(exclude_none=True)
    slots = {key: said[key] for key in ("batches", "runs", "agents", "evaluations") if key in said}
    timing = {key: said[key] for key in ("renew_seconds", "grace_seconds", "toleration_seconds") if key in said}
    wanted: dict[str, Any] = {key: said[key] for key in ("max_load", "min_memory_gb", "max_losses") if key in said}
    if slots:
        wanted["slots"] = slots
    if timing:
        wanted["timing"] = timing
    return NewPool.model_validate(wanted | {"name": name})


async def _note_used_tokens(app: FastAPI) -> None:
    while True:
        await asyncio.sleep(USED_SECONDS)
        await _note_used_tokens_now(app)


async def _note_used_tokens_now(app: FastAPI) -> None:
    used, app.state.used_tokens = app.state.used_tokens, set()
    try:
        if used:
            await run_in_threadpool(tokens_service.note_used, app.state.yard, used)
    except DatabaseUnavailable as error:
        _log.warning("tokens' last use was not stored: %s", error)
    except Exception:  # noqa: BLE001 - this loop lives as long as the process
        # Nothing depends on it, and the next minute's calls note it again.
        _log.exception("tokens' last use was not stored")
