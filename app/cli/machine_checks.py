"""What doctor looks at on this machine: whose `app` is imported, the broker, the runtime."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import app
from app.cli.findings import Finding
from app.local.broker import listening
from config import places
from config.broker_url import masked, refusal
from config.queues import pool_queue
from config.settings import WorkerSettings, load_with_origins
from executors.base import BaseExecutor, ExecutorUnavailable
from executors.factory import executor_factory
from executors.settings import ExecutorSettings

BROKER_SECONDS = 3.0
PROBE_SECONDS = 5.0
LOAD_SECONDS = 15.0
AGAIN_SECONDS = 0.2
RUNTIME_SECONDS = 30.0
"""Building and probing all runtimes may take so long; then doctor goes on without."""
ROOT = Path(app.__file__).resolve().parents[1]


def check_app(folder: Path) -> Finding:
    """Look whether `celery -A app`, started in `folder`, would import our `app`: Celery looks there first."""
    for name in ("app", "tasks", "config", "executors"):
        for found in (folder / name / "__init__.py", folder / f"{name}.py", folder / name):
            if found.exists() and folder.resolve() != ROOT and (found.is_file() or name == "app"):
                text = f"{found} hides gpuyard's own `{name}` ({ROOT / name})"
                return Finding("app", "red", text, "start gpuyard's commands in another folder")
    return Finding("app", "ok", f"gpuyard's own, {ROOT / 'app'}")


def check_broker() -> Finding:
    """Reach the broker that the settings name, else the one of a local `gpuyard up`."""
    settings, _ = load_with_origins(WorkerSettings)
    url = settings.broker_url.get_secret_value() if settings.broker_url else _local_broker()
    if url is None:
        return Finding("broker", "ok", "none is named here; only a machine with workers needs one")
    shown = masked(url)
    if url.startswith(("sentinel://", "memory://")):
        return Finding("broker", "warn", f"{shown} is not looked at")
    import redis  # noqa: PLC0415 - every other command would load all of it for nothing
    from kombu import Connection  # noqa: PLC0415 - as above
    from kombu.exceptions import KombuError  # noqa: PLC0415 - as above

    from config.celeryconfig import own_queue, transport_options  # noqa: PLC0415 - as above

    options = transport_options("gpuyard-doctor", socket_seconds=BROKER_SECONDS)
    try:
        with Connection(url, transport_options=options) as connection:
            channel = connection.channel()
            # A write, as any worker of the pool makes it at its start: a broker that is full answers and takes none.
            with suppress(redis.exceptions.NoPermissionError):
                own_queue(pool_queue(settings.pool))(channel).declare()
    except redis.AuthenticationError as error:
        return Finding("broker", "red", f"{shown} refuses us: {error}", "mend the password in GPUYARD_BROKER_URL")
    except (redis.RedisError, KombuError, OSError, ValueError) as error:
        if (why := refusal(error)) is not None:
            text = f"{shown} answers and takes no messages: {why[0]}"
            return Finding("broker", "red", text, f"{why[1]}; nothing is lost meanwhile")
        do = "start the broker, or mend GPUYARD_BROKER_URL; nothing is lost meanwhile"
        return Finding("broker", "red", f"{shown} does not answer: {error}", do)
    if listening(url, "gpuyard-control") != 0:
        return Finding("broker", "ok", shown)
    do = "start `celery -A app.celery_control worker -Q control`"
    return Finding("broker", "warn", f"{shown} answers, and no control worker is connected to it", do)


def check_runtimes() -> list[Finding]:
    """Build the executors a worker would build here, and look at each, in a bounded time."""
    settings, origins = load_with_origins(WorkerSettings)
    asked = origins["runtime"] != "default" or origins["runtime_url"] != "default"
    found: list[Finding] = []
    chosen = ExecutorSettings(
        runtime=settings.runtime,
        urls=settings.runtime_url,
        api_key=settings.runtime_api_key.get_secret_value() if settings.runtime_api_key else None,
        probe_seconds=PROBE_SECONDS,
        model_path=settings.local_model,
    )

    def look() -> None:
        found.extend(_look(chosen, asked=asked))

    thread = threading.Thread(target=look, name="runtimes", daemon=True)
    thread.start()
    thread.join(RUNTIME_SECONDS)
    if thread.is_alive():
        do = "look at the runtime's own log"
        return [Finding("runtime", "red", f"it did not show itself within {RUNTIME_SECONDS:g} s", do)]
    return found


def _look(settings: ExecutorSettings, *, asked: bool) -> Iterator[Finding]:
    """What was asked for and does not work is red; what a default did not find may not be meant to be here."""
    try:
        executors = executor_factory(settings)
    except ExecutorUnavailable as error:
        if asked:
            yield Finding("runtime", "red", str(error), "do what that says, or name another runtime in GPUYARD_RUNTIME")
        else:
            yield Finding("runtime", "warn", str(error), "nothing, unless workers are to run on this machine")
        return
    for executor in executors:
        yield _probe(executor, asked=asked)
        executor.close()


def _probe(executor: BaseExecutor, *, asked: bool) -> Finding:
    facts = executor.probe()
    # A model that is loaded by a child of ours takes some seconds; a server either answers or does not.
    until = time.monotonic() + (LOAD_SECONDS if executor.url is None else 0)
    while not facts.alive and time.monotonic() < until:
        time.sleep(AGAIN_SECONDS)
        facts = executor.probe()
    if not facts.alive:
        do = "start it, or mend GPUYARD_RUNTIME_URL or GPUYARD_RUNTIME_API_KEY"
        return Finding("runtime", "red" if asked else "warn", f"{facts.name} is not alive: {facts.reason}", do)
    models = ", ".join(model.id for model in facts.models[:5]) + (", …" if len(facts.models) > 5 else "")  # noqa: PLR2004 - what fits a line
    if not facts.models:
        return Finding("runtime", "warn", f"{facts.name} has no model", "give it one (`ollama pull NAME`)")
    return Finding("runtime", "ok", f"{facts.name} serves {models}")


def _local_broker() -> str | None:
    for path in places.local_files():
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(path.read_text(encoding="utf-8"))["broker_url"])
    return None
