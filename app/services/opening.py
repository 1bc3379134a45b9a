"""From a process's settings to the yard it works on. Called once, at an entry point of the control side."""

import logging
from dataclasses import fields

from app import private
from app.blobs.local import LocalBlobs
from app.db.store import Store
from app.domain.org_limits import OrgLimits
from app.domain.timing import Timing
from app.domain.webhooks import networks
from app.services.context import Bells, Limits, Silence, WebhookRules, Yard
from config.beat import SWEEPS
from config.settings import ServerSettings

log = logging.getLogger(__name__)
_OURS = (
    *("gpuyard.db*", "keys.json", "webhooks.key", "local.json", ".keys.json.*", ".local.json.*", ".webhooks.key.*"),
    *("up.lock", "children.lock", "broker", "control", "logs", "worker", "workers"),
)
"""What gpuyard keeps in its data folder and nobody else reads."""
_BESIDE = ("blobs", "broker.sock", "celerybeat-schedule*", "gpuyard.toml", ".cache", ".config", ".local")
"""What else may lie there without the folder being another program's, too."""


def open_yard(settings: ServerSettings, *, bells: Bells | None = None, connections: int = 20) -> Yard:
    """Open database and blobs as the settings say; the caller closes `yard.store`. Nothing is read or written yet.

    `connections`: at most so many to the database.
    """
    return Yard(
        store=Store(settings.database_url.get_secret_value(), pool_size=connections),
        blobs=LocalBlobs(settings.data_dir / "blobs"),
        timing=Timing(
            renew_seconds=settings.renew_seconds,
            grace_seconds=settings.grace_seconds,
            toleration_seconds=settings.toleration_seconds,
            kill_after_seconds=settings.kill_after_seconds,
            sweep_seconds=settings.sweep_seconds,
            stop_grace_seconds=settings.stop_grace_seconds,
        ),
        limits=Limits(
            shard_rows=settings.shard_rows,
            shard_bytes=settings.shard_bytes,
            max_rows=settings.max_rows,
            max_file_bytes=settings.max_file_bytes,
            max_line_bytes=settings.max_line_bytes,
            max_models=settings.max_models,
            max_requirements=settings.max_requirements,
            file_retention_seconds=settings.file_retention_seconds,
            blob_retention_seconds=settings.blob_retention_seconds,
            event_retention_seconds=settings.event_retention_seconds,
            segment_retention_seconds=settings.segment_retention_seconds,
            job_retention_seconds=settings.job_retention_seconds,
            batch_retention_seconds=settings.batch_retention_seconds,
            webhook_retention_seconds=settings.webhook_retention_seconds,
            worker_retention_seconds=settings.worker_retention_seconds,
            segment_seconds=settings.segment_seconds,
            max_attempts=settings.max_attempts,
            max_losses=settings.max_losses,
            webhook_max_tries=settings.webhook_max_tries,
            org=OrgLimits(**{each.name: getattr(settings, f"org_{each.name}") for each in fields(OrgLimits)}),
        ),
        default_pool=default_pool(settings),
        drop_parameters=settings.unsupported_parameters == "drop",
        cross_request=settings.cross_request_parameters,
        canary_rows=settings.canary_rows,
        webhooks=WebhookRules(
            key_file=settings.data_dir / "webhooks.key",
            networks=networks(settings.webhook_networks),
            timeout_seconds=settings.webhook_timeout_seconds,
        ),
        bells=bells or Silence(),
    )


def close_to_others(settings: ServerSettings, store: Store) -> None:
    """Have nobody else read database, keys and logs, at the start of a process; the log says what was open.

    Raises OSError when there is no data folder and none can be made.
    """
    beside = () if store.file is None else store.file.paths
    if closed := private.keep(settings.data_dir, ours=_OURS, beside=_BESIDE, more=beside):
        log.warning("other users could read %s: closed to all but this user", ", ".join(closed))


def periods(settings: ServerSettings) -> dict[str, float]:
    """Give how often each sweep runs, in seconds."""
    return {
        name: settings.retention_sweep_seconds if name == "retention" else settings.sweep_seconds for name in SWEEPS
    }


def default_pool(settings: ServerSettings) -> str:
    """Name the pool that a stock SDK call goes to: the one declared as the default, else `pool`."""
    return next((name for name, pool in settings.pools.items() if pool.default), settings.pool)
