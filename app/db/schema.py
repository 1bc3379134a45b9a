"""The schema: bring it to this version under a lock, or refuse to serve another one (DESIGN 2)."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from filelock import FileLock
from sqlalchemy import Connection, text

from app.db.store import Store

_LOCK = 0x67707579
"""PostgreSQL's advisory lock for migrations ("gpuy")."""


class SchemaMismatch(Exception):
    """The database's schema is not this version's; the message names the command that mends it."""


def migrate(store: Store) -> str:
    """Bring the schema to this version and give its revision. Two at once: one waits, then finds nothing to do."""
    if store.dialect == "sqlite" and store.engine.url.database:
        with FileLock(f"{store.engine.url.database}.migrate.lock"):
            return _upgrade(store)
    return _upgrade(store)


def _upgrade(store: Store) -> str:
    with store.engine.connect() as connection:
        if store.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            connection.commit()
        try:
            _refuse_newer(connection)
            config = Config()
            config.set_main_option("script_location", str(_here()))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
            return _current(connection) or ""
        finally:
            connection.rollback()
            if store.dialect == "postgresql":
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
                connection.commit()


def check(store: Store) -> None:
    """Raise SchemaMismatch unless the schema is exactly this version's."""
    with store.engine.connect() as connection:
        current = _current(connection)
        _refuse_newer(connection)
    if current != head():
        state = f"at revision {current}" if current else "empty"
        raise SchemaMismatch(f"the database is {state} and this gpuyard needs revision {head()}. Run: gpuyard migrate")


def head() -> str:
    """Give the revision that this version of the code needs."""
    return _scripts().get_current_head() or ""


def _refuse_newer(connection: Connection) -> None:
    current = _current(connection)
    known = {revision.revision for revision in _scripts().walk_revisions()}
    if current is not None and current not in known:
        raise SchemaMismatch(
            f"the database is at revision {current}, which a newer gpuyard made; this one knows up to {head()}. "
            "Upgrade gpuyard on this machine: pip install --upgrade 'gpuyard[server]'"
        )


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_here()))


def _here() -> Path:
    return Path(__file__).parent / "migrations"
