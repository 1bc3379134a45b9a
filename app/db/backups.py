"""A copy of the database at one moment while it is in use, and what has to be done to one that is put back.

SQLite is copied by itself (`VACUUM INTO`), PostgreSQL by `pg_dump` and `pg_restore` of this machine.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL, Connection, and_, exists, inspect, or_, select, text
from sqlalchemy.exc import DatabaseError
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
    """A content that a copied database knows of.

    `needed`: a user, a worker or a finalizer may still read it. `is_marked`: it was found damaged.
    """

    key: str
    bytes: int
    digest: str | None
    needed: bool
    is_marked: bool


def file_name(store: Store) -> str:
    """Name the file that a copy of a database of this kind is."""
    return "gpuyard.db" if store.dialect == "sqlite" else "gpuyard.dump"


def copy(store: Store, target: Path) -> Sequence[Content]:
    """Write the database as it is at one moment into the new file `target`; gives the contents it knows of then.

    Nobody waits meanwhile. Raises DumpFailed.
    """
    _make_private(target)
    if store.dialect == "sqlite":
        try:
            with store.engine.connect() as connection:
                connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
        except DatabaseError as error:
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


def check_copy(store: Store, source: Path) -> None:
    """Raise DumpFailed where a copy could not be put back, for what it is or for want of a program.

    Better before contents are copied: those would be in the way of the next try.
    """
    if not source.is_file():
        raise DumpFailed(f"the backup is not whole: there is no {source}")
    if store.dialect != "sqlite":
        _run("pg_restore", "--list", str(source))
        return
    try:
        # As it lies there, for it may lie where nothing can be written.
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as copied:
            found = copied.execute("PRAGMA quick_check(1)").fetchone()
            copied.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        raise DumpFailed(f"{source} is damaged: {error}") from None
    if found != ("ok",):
        raise DumpFailed(f"{source} is damaged: {found[0] if found else 'it cannot be checked'}")


@contextmanager
def put_back(store: Store, source: Path) -> Iterator[Store]:
    """Fill the empty database with a copy; the block gets it, for what has to be done before anybody uses it.

    On SQLite the file has its name when the block has ended. Raises DumpFailed.
    """
    if store.file is None:
        options = ("--no-owner", "--exit-on-error", "--single-transaction")
        _postgres(store.engine.url, "pg_restore", *options, str(source))
        yield store
        return
    final = store.file.path
    part = final.with_name(f"{final.name}.restoring")
    _forget(part)
    final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _make_private(part)
    shutil.copyfile(source, part)
    with closing(Store(f"sqlite:///{part}")) as opened:
        yield opened
    durable.sync(part)
    store.close()
    _forget(final)
    part.replace(final)
    durable.sync(final.parent)
    store.file.mark()


def is_empty(store: Store) -> bool:
    """Tell whether there is no table yet, and make no file by asking. Raises app.db.store.DatabaseUnavailable."""
    if store.file is not None and not store.file.has_content:
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
    query = select(
        col(Blob.key),
        col(Blob.bytes),
        col(Blob.digest),
        or_(of_file, of_segment).label("needed"),
        col(Blob.damaged_at).is_not(None).label("is_marked"),
    ).where(col(Blob.put_at).is_not(None), col(Blob.collected_at).is_(None))
    return [
        Content(key, size, digest, bool(needed), bool(is_marked))
        for key, size, digest, needed, is_marked in connection.execute(query)
    ]


def _make_private(file: Path) -> None:
    """Make an empty file that its owner alone reads, before anything is in it. Raises DumpFailed."""
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise DumpFailed(f"the database was not copied to {file}: {error.strerror}") from None


def _postgres(url: URL, program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; the password goes by the environment, which nobody else sees."""
    place = url.set(drivername="postgresql", password=None).difference_update_query(["password"])
    password = url.password or url.query.get("password")
    _run(program, f"--dbname={place.render_as_string()}", "--no-password", *arguments, password=password)


def _run(program: str, *arguments: str, password: object = None) -> None:
    environment = os.environ | ({"PGPASSWORD": str(password)} if password else {})
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the program's name is ours
            [program, *arguments], env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise DumpFailed(f"there is no {program} here: install PostgreSQL's client programs") from None
    if done.returncode:
        raise DumpFailed(f"{program} failed ({done.returncode}): {done.stderr.strip()}")


def _forget(database: Path) -> None:
    for end in ("", *_KEPT_WITH_IT):
        database.with_name(database.name + end).unlink(missing_ok=True)
