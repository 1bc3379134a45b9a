"""The schema that this version needs; another one is not served (DESIGN 2).

Every process of the control plane looks at its start, so this reads Alembic's one row itself: Alembic takes longer to
load than the look. `app.db.migrating` is what changes a schema.
"""

import time
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from app.db.store import Store

_LOOK_SECONDS = 0.05


class SchemaMismatch(Exception):
    """The database's schema is not this version's; the message names the command that mends it."""


def check(store: Store, *, wait_seconds: float = 0.0) -> None:
    """Raise SchemaMismatch unless the schema is exactly this version's, or becomes so within `wait_seconds`."""
    until = time.monotonic() + wait_seconds
    while (found := _look(store)) != head() and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    if found != head():
        state = f"at revision {found}" if found else "empty"
        raise SchemaMismatch(f"the database is {state} and this gpuyard needs revision {head()}. Run: gpuyard migrate")


def refuse_none(store: Store) -> None:
    """Raise SchemaMismatch where the settings lead to no gpuyard at all, as in a shell without those of the services.

    Raises DatabaseUnavailable where there was one and is none.
    """
    if _look(store) is None:
        raise SchemaMismatch(
            "there is no gpuyard at these settings: name its data folder (--data, GPUYARD_DATA_DIR), or its database "
            "(GPUYARD_DATABASE_URL)"
        )


def _look(store: Store) -> str | None:
    if store.file is not None and not store.file.has_content:
        store.file.refuse_lost()
        return None
    with store.read() as session:  # which tells a database that is away
        found = current(session.connection())
        if found is None:
            refuse_another_programs(store, session.connection())
    refuse_newer(found)
    return found


def head() -> str:
    """Give the revision that this version of the code needs: of `0001_…`, `0002_…` the last."""
    return _known()[-1]


def refuse_newer(revision: str | None) -> None:
    """Raise SchemaMismatch for a revision that this version does not know, and for one of another program."""
    if revision is not None and not (revision.isascii() and revision.isdigit() and len(revision) == len(head())):
        raise SchemaMismatch(
            f"the database is at revision {revision}, which is not gpuyard's: another program keeps its data there. "
            "Name a database of gpuyard's own in GPUYARD_DATABASE_URL"
        )
    if revision is not None and revision not in _known():
        raise SchemaMismatch(
            f"the database is at revision {revision}, which a newer gpuyard made; this one knows up to {head()}. "
            "Upgrade gpuyard on this machine (docs/operate/upgrade.md): git pull and make install in a clone, "
            "or the newer wheel"
        )


def refuse_another_programs(store: Store, connection: Connection) -> None:
    """Raise DatabaseUnavailable for a SQLite file without our schema that is not a new one.

    A server's database may be shared with another program.
    """
    if store.file is not None:
        tables = inspect(connection).get_table_names()
        if "alembic_version" not in tables:
            store.file.refuse_another_programs(tables)


def current(connection: Connection) -> str | None:
    """Give the revision a database is at. None: it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


@cache
def _known() -> tuple[str, ...]:
    scripts = (Path(__file__).parent / "migrations" / "versions").glob("[0-9]*_*.py")
    return tuple(sorted(script.name.partition("_")[0] for script in scripts))
