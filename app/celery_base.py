"""What the two Celery apps share: one configuration, one logging, a worker without gossip and mingle.

Celery has no setting for gossip, mingle or the node name, hence a `Worker` of our own (DESIGN 2).
"""

import logging
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import click
from celery import Celery, signals
from celery.apps.worker import Worker

from config.beat import schedule
from config.celeryconfig import transport_options
from config.errors import SettingsError
from config.fields import BrokerSettings, Common, SweepSettings
from config.logging import configure
from config.settings import load


class QuietWorker(Worker):
    """Two plain workers need not know each other: the database knows them. Starts a second faster, with fewer keys."""

    def __init__(self, app: Celery | None = None, hostname: str | None = None, **options: Any) -> None:
        super().__init__(app=app, hostname=hostname, **(options | {"without_mingle": True, "without_gossip": True}))


class YardCelery(Celery):
    """A Celery app configured by `config.celeryconfig` and by the settings of its process.

    `from_settings` is called when the configuration is first needed, not at import: by then the command line was
    read. Wrong settings end the process with their message.
    """

    worker_class: type[Worker] = QuietWorker

    def __init__(self, name: str, *, from_settings: Callable[[], dict[str, Any]], include: list[str]) -> None:
        super().__init__(name, include=include, config_source="config.celeryconfig")
        self.add_defaults(lambda: _or_exit(from_settings))

    @cached_property
    def Worker(self) -> type[Worker]:  # noqa: N802 - Celery's name
        """The class `celery worker` starts."""
        return cast("type[Worker]", self.subclass_with_self(self.worker_class, name="Worker"))


def broker_option() -> dict[str, Any]:
    """`celery -b URL` as a command-line setting; Celery itself hands it on by this variable."""
    return {"broker_url": os.environ.get("CELERY_BROKER_URL")}


def settings_for_celery(settings: BrokerSettings, *, threads: int, client_name: str) -> dict[str, Any]:
    """The part of Celery's configuration that comes from settings. Raises SettingsError without a broker."""
    if settings.broker_url is None:
        raise SettingsError("no broker: set GPUYARD_BROKER_URL (or start everything with `gpuyard up`)")
    return {
        "broker_url": settings.broker_url.get_secret_value(),
        "broker_transport_options": transport_options(client_name),
        "worker_concurrency": threads,
    }


def beat_schedule(settings: SweepSettings) -> dict[str, Any]:
    """The schedule of `celery -A app beat`."""
    return {
        "beat_schedule": schedule(
            sweep_seconds=settings.sweep_seconds, retention_sweep_seconds=settings.retention_sweep_seconds
        ),
        # Beat sleeps at most this long, so that its own liveness answer is as fresh as its shortest entry.
        "beat_max_loop_interval": settings.sweep_seconds,
    }


def process_name(usual: str) -> str:
    """What this process is called in logs and at the broker: the app of GPU workers is beat's and Flower's, too."""
    command = click.get_current_context(silent=True)
    return command.info_name if command and command.info_name in {"beat", "flower"} else usual


def log_as(process: str, *, settings: type[Common]) -> None:
    """Take Celery's logging over: with a receiver of this signal Celery sets up none of its own."""

    def set_up(loglevel: int | str | None = None, logfile: str | None = None, **_: object) -> None:
        ours = load(settings, cli=broker_option() if "broker_url" in settings.model_fields else {})
        asked = loglevel if isinstance(loglevel, int) else logging.WARNING
        lowest = min(asked, logging.getLevelNamesMapping()[ours.log_level])
        configure(
            process_name(process),
            level=logging.getLevelName(lowest),
            as_json=ours.log_json,
            file=Path(logfile) if logfile else None,
        )

    signals.setup_logging.connect(set_up, weak=False, dispatch_uid="gpuyard-logging")


def _or_exit(from_settings: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return from_settings()
    except SettingsError as error:
        raise SystemExit(f"gpuyard: {error}") from None
