"""The worker side's Celery app: `celery -A app worker -Q gpu`, `celery -A app beat`, `celery -A app flower`.

Nothing here may reach the database or the web framework, even indirectly: a GPU machine has neither installed.
"""

import os
import platform
from typing import Any

import click
from celery import Celery

from app.celery_base import (
    QuietWorker,
    YardCelery,
    beat_schedule,
    broker_option,
    log_as,
    process_name,
    settings_for_celery,
)
from app.worker import current, signals
from app.worker.bootstep import AgentStep
from config.errors import SettingsError
from config.logging import configure
from config.settings import CelerySettings, WorkerSettings, load

# One thread more than batches, so that the next batch starts while the last rows of the old one run; one for set-up.
EXTRA_THREADS = 2

_OPTIONS = {
    "api_key": "api_key",
    "worker_name": "name",
    "runtime": "runtime",
    "runtime_url": "runtime_url",
    "server_url": "server_url",
    "max_concurrent_prompts": "max_concurrent_prompts",
}


class GpuWorker(QuietWorker):
    """A Celery worker with our agent inside. The agent is known to the control plane before Celery has a node name."""

    def __init__(
        self,
        app: Celery | None = None,
        hostname: str | None = None,
        queues: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        given = {setting: options.pop(option, None) or None for setting, option in _OPTIONS.items()}
        options.pop("config", None)
        names = queues.split(",") if isinstance(queues, str) else list(queues or ())
        try:
            settings = load(WorkerSettings, cli={**given, **broker_option(), "pool": names[0] if names else None})
        except SettingsError as error:
            raise SystemExit(f"gpuyard: {error}") from None
        # Celery sets logging up only in its own start, and the agent has things to say (and keys to hide) before.
        configure("worker", level=settings.log_level, as_json=settings.log_json)
        from app.worker.agent import Agent  # noqa: PLC0415 - beat and Flower load this module and run no jobs

        agent = current.install(Agent(settings))
        signals.take_over(agent.on_signal, agent.on_shutdown)
        agent.start()
        # The queue of remote control is no list on Redis, and to have it expire takes Lua scripts: none of a worker's
        # business. What asks workers (the control plane, Flower, `celery inspect`) keeps its queues for replies short.
        self.app.conf.control_queue_expires = None
        node = f"{agent.name}@{platform.node()}" if hostname in (None, _default_node()) else hostname
        super().__init__(app=app, hostname=node, queues=queues, **options)


class GpuCelery(YardCelery):
    """The app of GPU workers."""

    worker_class = GpuWorker


def _default_node() -> str:
    return f"celery@{platform.node()}"


def _from_settings() -> dict[str, Any]:
    settings = load(CelerySettings, cli=broker_option())
    return settings_for_celery(
        settings, threads=settings.slots_batches + EXTRA_THREADS, client_name=f"gpuyard-{process_name('worker')}"
    ) | beat_schedule(settings)


def _use_file(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Name the settings file before anything reads settings: other options already look into the configuration."""
    if value:
        os.environ["GPUYARD_CONFIG"] = value
    return value


def _keep_flower_to_this_machine() -> None:
    """Flower listens on every address unless it is told otherwise, and its pages ask nobody for a password.

    Its own variables, its file and its command line go before these.
    """
    os.environ.setdefault("FLOWER_ADDRESS", "127.0.0.1")
    os.environ.setdefault("FLOWER_READ_ONLY", "true")


_keep_flower_to_this_machine()
app = GpuCelery("gpuyard", from_settings=_from_settings, include=["tasks.gpu"])
app.steps["worker"].add(AgentStep)
app.user_options["worker"] |= {
    click.Option(["--config"], help="Settings file.", callback=_use_file, is_eager=True),
    click.Option(["--api-key"], help="Worker key (gk-…); better in GPUYARD_API_KEY."),
    click.Option(["--name"], help="Name of this worker."),
    click.Option(["--server-url"], help="URL of the API."),
    click.Option(["--runtime"], help="auto, ollama, vllm, local, fake or package.module:Class."),
    click.Option(["--runtime-url"], multiple=True, help="URL of a runtime; may be given several times."),
    click.Option(["--max-concurrent-prompts"], help="auto or a number."),
}
log_as("worker", settings=CelerySettings)
