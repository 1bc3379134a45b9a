"""What a worker has before anybody knows of it: state directory, spool, runtimes, HTTP client. And its hello."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from app.client.control_plane import ControlPlane
from app.domain.workers import Transport
from app.schemas.workers import Hello, Welcome
from app.worker import introduction
from app.worker.backoff import backoff
from app.worker.clock import Clock
from app.worker.counters import WorkerCounters
from app.worker.hello import say_hello
from app.worker.permits import Permits
from app.worker.prompt_size import PromptSize
from app.worker.runtimes import Runtimes
from app.worker.sampler import Sampler
from app.worker.spool import Spool
from app.worker.state import StateDir
from config.proxies import proxy_for
from config.settings import WorkerSettings
from executors.base import BaseExecutor, ExecutorUnavailable
from executors.factory import executor_factory
from executors.settings import ExecutorSettings

SAMPLE_SECONDS = 5.0
"""A hello waits so long for a first look at the host, and goes without it when that hangs."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker's own parts; they do not depend on what the control plane answers."""

    state: StateDir
    spool: Spool
    runtimes: Runtimes
    sampler: Sampler
    permits: Permits
    size: PromptSize
    plane: ControlPlane
    counters: WorkerCounters


def open_parts(
    settings: WorkerSettings, executors: Sequence[BaseExecutor] | None, clock: Clock, closing: ExitStack
) -> Opened:
    """Lock the state directory and look at the runtimes once; `closing` lets go of all of it, also after an error.

    Raises ExecutorUnavailable and StateDirBusy.
    """
    if settings.server_url is None or settings.api_key is None:
        raise ExecutorUnavailable("a worker needs GPUYARD_SERVER_URL and GPUYARD_API_KEY")
    found = executors if executors is not None else executor_factory(_for_executors(settings))
    state = closing.enter_context(StateDir(settings.state_dir))
    sampler = Sampler(state.path)
    sampler.start()
    closing.callback(sampler.stop)
    runtimes = Runtimes(found, clock, down_seconds=settings.runtime_down_seconds, pull_models=settings.pull_models)
    closing.callback(runtimes.close)
    runtimes.probe()
    permits = Permits(1)
    size = PromptSize(permits, clock, fixed=_fixed_prompts(settings))
    size.runtimes_changed(runtimes.known_slots)
    key = settings.api_key.get_secret_value()
    proxy = proxy_for(settings.server_url)
    plane = ControlPlane(settings.server_url, key, boot_id=state.boot_id, proxy=proxy, clock=time.monotonic)
    closing.callback(plane.close)
    spool = Spool(state.spool_path)
    spool.check()
    return Opened(state, spool, runtimes, sampler, permits, size, plane, WorkerCounters())


def introduce(settings: WorkerSettings, transport: Transport, own: Opened, stop: threading.Event) -> Welcome:
    """Send the spool and say hello until it is taken, or `stop` is set. Raises app.client.errors."""
    who = introduction.Identity(
        name="",
        pool=settings.pool,
        transport=transport,
        slots=settings.slots_batches,
        max_concurrent_prompts=_fixed_prompts(settings),
        named=settings.worker_name is not None,
    )

    def say(who: introduction.Identity) -> Welcome:
        def hello() -> Hello:
            return introduction.hello(
                who, own.state, own.runtimes, own.sampler.first(SAMPLE_SECONDS), own.spool.leases()
            )

        waits = backoff(settings.retry_min_seconds, settings.retry_max_seconds)
        return say_hello(own.plane, own.spool, hello, waits, stop)

    choices = introduction.names(settings.worker_name, settings.machine_id, own.state.path)
    return introduction.introduce(who, choices, say, own.state.path)


def _fixed_prompts(settings: WorkerSettings) -> int | None:
    return None if settings.max_concurrent_prompts == "auto" else settings.max_concurrent_prompts


def _for_executors(settings: WorkerSettings) -> ExecutorSettings:
    key = settings.runtime_api_key
    return ExecutorSettings(
        runtime=settings.runtime,
        urls=settings.runtime_url,
        api_key=key.get_secret_value() if key else None,
        embedding_chunk_size=settings.embedding_chunk_size,
        pull_models=settings.pull_models,
        ollama_num_parallel=settings.ollama_num_parallel,
        ollama_truncate=settings.ollama_truncate,
        model_load_seconds=settings.model_load_seconds,
        model_path=settings.local_model,
        local_embeddings=settings.local_embeddings,
    )
