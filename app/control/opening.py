"""From settings to a control agent that is ready to start."""

from app.blobs.store import BlobUnavailable
from app.control.agent import ControlAgent
from app.control.place import Place
from app.db import restored, schema
from app.db.store import DatabaseUnavailable
from app.os_errors import plainly
from app.services import content_store
from app.services.dispatch import Ringer, publisher
from app.services.opening import close_to_others, open_yard, periods
from config.metrics import open_port
from config.settings import ServerSettings, load


def open_agent() -> ControlAgent:
    """Open database, blobs and broker as the settings say.

    Raises SystemExit when there is no database, its schema is not this version's, the data folder cannot be used, or
    the contents are not its own.
    """
    settings = load(ServerSettings)
    try:
        yard = open_yard(settings)
        close_to_others(settings, yard.store)
        schema.check(yard.store, wait_seconds=settings.schema_wait_seconds)
        restored.check(yard.store)
        content_store.settle(yard)
        place = Place(settings.data_dir / "control")
    except (schema.SchemaMismatch, DatabaseUnavailable, BlobUnavailable, OSError) as error:
        raise SystemExit(f"gpuyard: {plainly(error)}") from None
    if settings.broker_url is not None:
        yard = Ringer(publisher(settings.broker_url.get_secret_value())).start(yard)
    agent = ControlAgent(yard, place=place, periods=periods(settings), threads=settings.control_threads)
    if settings.metrics_port is not None:
        open_port(yard.counters.registry, settings.metrics_host, settings.metrics_port)
    return agent
