"""A copy of the database at one moment while it is in use, and what has to be done to one that is put back.

SQLite is copied by itself (`VACUUM INTO`), PostgreSQL by `pg_dump` and `pg_restore` of this machine.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL, Connection, and_, exists, inspect, or_, select, text
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel, col

from app import durable
from app.db.store import Store
from app.db.tables import Batch, Blob, File, Segment
from app.domain.batches import ENDED

GAP = 1_000_000_000
"""So far numbers jump when a copy is put back: not as many were given out since it was made."""
_KEPT_WITH_IT = ("-wal", "-shm", "-journal")


class DumpFailed(Exception):
    """The database, or PostgreSQL's own programs, could not do it; the message is theirs."""


class Content(NamedTuple):
    """A content that a copied database knows of. `needed`: a user, a worker or a finalizer may still read it."""

    key: str
    bytes: int
    digest: str | None
    needed: bool


def file_name(store: Store) -> str:
    """Name the file that a copy of a database of this kind is."""
    return "gpuyard.db" if store.dialect == "sqlite" else "gpuyard.dump"


def copy(store: Store, target: Path) -> Sequence[Content]:
    """Write the database as it is at one moment into the new file `target`; gives the contents it knows of then.

    Nobody waits meanwhile. Raises DumpFailed.
    """
    if store.dialect == "sqlite":
        try:
            with store.engine.connect() as connection:
                connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
        except OperationalError as error:
            raise DumpFailed(f"the database was not copied to {target}: {error.orig}") from None
        with closing(Store(f"sqlite:///{target}")) as copied:
            found = _read_alone(copied)
    else:
        with store.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            snapshot = connection.scalar(text("SELECT pg_export_snapshot()"))
            _postgres(store.engine.url, "pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={target}")
            found = _contents(connection)
    durable.sync(target)
    return found


def check_programs(store: Store) -> None:
    """Raise DumpFailed where a copy could not be put back for want of a program: better before contents are copied."""
    if store.dialect != "sqlite" and shutil.which("pg_restore") is None:
        raise _missing("pg_restore")


@contextmanager
def put_back(store: Store, source: Path) -> Iterator[Store]:
    """Fill the empty database with a copy; the block gets it, for what has to be done before anybody uses it.

    On SQLite the file has its name when the block has ended. Raises DumpFailed.
    """
    if store.dialect != "sqlite":
        options = ("--no-owner", "--exit-on-error", "--single-transaction")
        _postgres(store.engine.url, "pg_restore", *options, str(source))
        yield store
        return
    final = Path(store.engine.url.database or "")
    part = final.with_name(f"{final.name}.restoring")
    _forget(part)
    final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copyfile(source, part)
    part.chmod(0o600)
    with closing(Store(f"sqlite:///{part}")) as opened:
        yield opened
    durable.sync(part)
    store.close()
    _forget(final)
    part.replace(final)
    durable.sync(final.parent)


def is_empty(store: Store) -> bool:
    """Tell whether there is no table yet, and make no file by asking. Raises app.db.store.DatabaseUnavailable."""
    if store.dialect == "sqlite" and not Path(store.engine.url.database or "").exists():
        return True
    with store.read() as session:
        return not inspect(session.connection()).get_table_names()


def contents(store: Store) -> Sequence[Content]:
    """Read which contents a database of this version knows of."""
    with store.engine.connect() as connection:
        return _contents(connection)


def jump(store: Store) -> None:
    """Have every number that counts up go on far above all that were given out since the copy was made.

    A lease's id is its fence and never comes again (PROTOCOL 1): a worker may still hold one that the copy never knew.
    """
    with store.begin() as session:
        connection = session.connection()
        there = inspect(connection).get_table_names()
        for table in SQLModel.metadata.sorted_tables:
            if table.dialect_options["sqlite"]["autoincrement"] and table.name in there:
                _jump(connection, table.name, table.primary_key.columns[0].name)


def _jump(connection: Connection, table: str, column: str) -> None:
    if connection.dialect.name == "postgresql":
        sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:t, :c)"), {"t": table, "c": column})
        connection.execute(
            text("SELECT setval(CAST(:s AS regclass), nextval(CAST(:s AS regclass)) + :gap)"),
            {"s": sequence, "gap": GAP},
        )
        return
    given = {"gap": GAP, "name": table}
    if not connection.execute(text("UPDATE sqlite_sequence SET seq = seq + :gap WHERE name = :name"), given).rowcount:
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :gap)"), given)


def _read_alone(copied: Store) -> Sequence[Content]:
    """Read a copy that nobody else opens, and leave it as one file."""
    with copied.engine.connect() as connection:
        found = _contents(connection)
        connection.rollback()
        connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
    return found


def _contents(connection: Connection) -> Sequence[Content]:
    """Read the blobs whose content is there."""
    read_by_batch = exists().where(col(Batch.input_file_id) == col(File.id), col(Batch.state).not_in(sorted(ENDED)))
    of_file = exists().where(
        and_(col(File.blob_key) == col(Blob.key), or_(col(File.hidden_at).is_(None), read_by_batch))
    )
    of_segment = exists().where(col(Segment.blob_key) == col(Blob.key))
    query = select(col(Blob.key), col(Blob.bytes), col(Blob.digest), or_(of_file, of_segment).label("needed")).where(
        col(Blob.put_at).is_not(None), col(Blob.collected_at).is_(None)
    )
    return [Content(key, size, digest, bool(needed)) for key, size, digest, needed in connection.execute(query)]


def _postgres(url: URL, program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; the password goes by the environment, which nobody else sees."""
    place = url.set(drivername="postgresql", password=None).difference_update_query(["password"])
    environment = dict(os.environ)
    if password := url.password or url.query.get("password"):
        environment["PGPASSWORD"] = str(password)
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the program's name is ours
            [program, f"--dbname={place.render_as_string()}", "--no-password", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise _missing(program) from None
    if done.returncode:
        raise DumpFailed(f"{program} failed ({done.returncode}): {done.stderr.strip()}")


def _missing(program: str) -> DumpFailed:
    return DumpFailed(f"there is no {program} here: install PostgreSQL's client programs")


def _forget(database: Path) -> None:
    for end in ("", *_KEPT_WITH_IT):
        database.with_name(database.name + end).unlink(missing_ok=True)
