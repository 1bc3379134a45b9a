"""The control side's Celery app: `celery -A app.celery_control worker -Q control`. Its tasks open the database."""

from typing import Any

from app.celery_base import YardCelery, beat_schedule, broker_option, log_as, settings_for_celery
from app.control.bootstep import ControlStep
from config.settings import ServerSettings, load

# Sweeps have a thread of their own: control work must not keep dead workers' leases alive.
SWEEP_THREADS = 1


def _from_settings() -> dict[str, Any]:
    settings = load(ServerSettings, cli=broker_option())
    return settings_for_celery(
        settings, threads=settings.control_threads + SWEEP_THREADS, client_name="gpuyard-control"
    ) | beat_schedule(settings)


app = YardCelery("gpuyard-control", from_settings=_from_settings, include=["tasks.control", "tasks.sweeps"])
app.steps["worker"].add(ControlStep)
log_as("control", settings=ServerSettings)
