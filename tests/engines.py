"""What the engines of a test process share and leave out: nearly all of a small test's time went into both.

The product has one engine a process, compiles each statement once, and syncs each commit to the disk. A test process
has an engine a test, compiled the same statements for each, and synced what is thrown away a moment later.
"""

from sqlalchemy import Connection, Engine, event

_first: dict[str, Engine] = {}


def share_engines() -> None:
    """From now on, engines of one kind of database share what they compiled, and SQLite leaves syncing to the system.

    PostgreSQL's servers of the tests do not sync either (tests.cluster). Processes that tests start are the product's.
    """
    event.listen(Engine, "engine_connect", _prepare)


def _prepare(connection: Connection) -> None:
    engine = connection.engine
    first = _first.setdefault(engine.dialect.name, engine)
    if engine.dialect is not first.dialect:  # the keys of what is compiled hold the dialect
        engine.dialect = connection.dialect = first.dialect
        engine._compiled_cache = first._compiled_cache
    if engine.dialect.name == "sqlite" and "unsynced" not in connection.info:
        connection.info["unsynced"] = True
        connection.connection.cursor().execute("PRAGMA synchronous = OFF")  # past SQLAlchemy, which would begin
