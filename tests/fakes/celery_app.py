"""A Celery app with the product's configuration and three tasks of the tests': started by the plain command."""

import os
import time
from pathlib import Path

from app.celery_base import YardCelery, beat_schedule, broker_option, log_as, settings_for_celery
from config.settings import CelerySettings, load


def _from_settings() -> dict[str, object]:
    settings = load(CelerySettings, cli=broker_option())
    return settings_for_celery(settings, threads=settings.slots_batches, client_name="gpuyard-test") | beat_schedule(
        settings
    )


app = YardCelery("test", from_settings=_from_settings, include=[])
log_as("test", settings=CelerySettings)


@app.task(name="note", shared=False)
def note(folder: str, line: str) -> None:
    """Add a line, with the moment, to `<folder>/notes`."""
    with (Path(folder) / "notes").open("a") as file:
        file.write(f"{line} {time.monotonic()}\n")


@app.task(name="hold", shared=False)
def hold(folder: str, name: str) -> None:
    """Note the start, wait for `<folder>/release`, note the end."""
    note(folder, f"started-{name}")
    while not (Path(folder) / "release").exists():
        time.sleep(0.02)
    note(folder, f"ended-{name}")


@app.task(name="node", shared=False, bind=True)
def node(self: object, folder: str) -> None:
    """Note the process."""
    note(folder, f"pid-{os.getpid()}")
