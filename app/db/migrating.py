"""Bringing the schema to this version, under a lock: two who start at once do it once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from filelock import FileLock
from sqlalchemy import text

from app.db import schema
from app.db.store import Store

_LOCK = 0x67707579
"""PostgreSQL's advisory lock for migrations ("gpuy")."""


def migrate(store: Store, *, to: str = "head", new: bool = False) -> str:
    """Bring the schema to this version and give its revision. Two at once: one waits, then finds nothing to do.

    `to` an older revision: so that a test can be at one. `new`: begin an empty SQLite file though there was one.
    Raises app.db.schema.SchemaMismatch for one that a newer version made, app.db.store.DatabaseUnavailable.
    """
    if store.file is not None:
        with FileLock(f"{store.file.path}.migrate.lock", mode=0o600):
            store.file.begin(new=new)
            revision = _upgrade(store, to)
            store.file.mark()
            return revision
    return _upgrade(store, to)


def _upgrade(store: Store, to: str) -> str:
    with store.connected(), store.engine.connect() as connection:
        if store.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            connection.commit()
        try:
            found = schema.current(connection)
            schema.refuse_newer(found)
            if found is None:
                schema.refuse_another_programs(store, connection)
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            connection.commit()
            return schema.current(connection) or ""
        finally:
            connection.rollback()
            if store.dialect == "postgresql":
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
                connection.commit()
