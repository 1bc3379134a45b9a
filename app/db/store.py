"""The database: one engine, one clock, and two ways to open a transaction (PROTOCOL 1).

Every rule's time is the database's. A transaction reads it once, at its start: a lock waited for can only make that
value older, and every rule is safe with an older now (an expiry expires less, a renewal renews for less).
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlmodel import Session
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from app.db.errors import DatabaseFull
from app.db.errors import DatabaseUnavailable as DatabaseUnavailable  # noqa: PLC0414 - where everybody finds it
from app.db.rested import ping_after_a_rest
from app.db.sqlite_file import DatabaseFile
from app.db.types import from_ms
from app.os_errors import plainly

_NOW = {
    "sqlite": "SELECT CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)",
    "postgresql": "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}
BUSY_MS = 30_000
# Packets may vanish without a word, and the system's own patience is a quarter of an hour where something was sent and
# two hours where something is waited for. The server has to know of a dead peer, too, or it keeps what that one locked.
_IDLE_SECONDS, _AGAIN_SECONDS, _TIMES, _UNANSWERED_MS = 10, 5, 3, 20_000
_PATIENCE = {
    "keepalives_idle": _IDLE_SECONDS,
    "keepalives_interval": _AGAIN_SECONDS,
    "keepalives_count": _TIMES,
    "tcp_user_timeout": _UNANSWERED_MS,
}
_SERVERS_PATIENCE = (
    f"SELECT set_config('tcp_keepalives_idle', '{_IDLE_SECONDS}', false),"
    f" set_config('tcp_keepalives_interval', '{_AGAIN_SECONDS}', false),"
    f" set_config('tcp_keepalives_count', '{_TIMES}', false),"
    f" set_config('tcp_user_timeout', '{_UNANSWERED_MS}', false)"
)
_NO_RIGHT = "42501"
_DISK_FULL = "53100"
_SQLITE_FULL = "disk is full"
_SQLITE_AWAY = (_SQLITE_FULL, "disk I/O error", "unable to open", "readonly database")

_FULL = "the disk of the database is full; make room on it, and all goes on by itself"
FULL_SECONDS = 15.0
"""A disk counts as full for so long after a write that it refused: longer than passes between two of an API process."""

T = TypeVar("T")


class Store:
    """One process's connection to the database. Threads may share it; each transaction has a session of its own."""

    def __init__(self, url: str, *, pool_size: int = 20) -> None:
        self.engine = _engine(url, pool_size)
        self.dialect = self.engine.dialect.name
        self.file = file_of(self.engine.url)
        """SQLite's; None: a server's database, or one in memory."""
        self.clock_shift = timedelta(0)
        """Added to the database's time. Zero but in tests, which move time with it."""
        self._full_at = float("-inf")
        # SQLite has one writer; queueing here is fairer and cheaper than its sleeping busy handler.
        self._writer = threading.RLock() if self.dialect == "sqlite" else None

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()
        if self.file is not None:
            self.file.forget()

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """Open a writing transaction; commits at the end of the block, rolls back on any exception."""
        with self._write_lock(), self.connected(), Session(self.engine, expire_on_commit=False) as session:
            if self.dialect == "sqlite":
                session.connection().exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield session
            except BaseException:
                session.rollback()
                raise
            session.commit()
            if self.file is not None:
                self.file.check(is_written=True)  # or what was committed is nowhere

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a transaction that only reads: one consistent moment on SQLite, a statement's on PostgreSQL."""
        with self.connected(), Session(self.engine, expire_on_commit=False) as session:
            if self.dialect == "sqlite":
                session.connection().exec_driver_sql("BEGIN")
            # Closed and not rolled back: a rollback would expire what was read, and callers hand it on.
            yield session

    def run(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a writing transaction, and again (up to 5 times) when the database chose it as a victim.

        Raises DatabaseUnavailable when it was chosen every time: the database is too busy.
        """
        try:
            for attempt in Retrying(
                retry=retry_if_exception(_is_victim),
                stop=stop_after_attempt(5),
                wait=wait_random_exponential(multiplier=0.02, max=1),
                reraise=True,
            ):
                with attempt, self.begin() as session:
                    result = work(session)
        except DBAPIError as error:
            if _is_victim(error):
                raise DatabaseUnavailable(f"the database is too busy: {error.orig}") from error
            raise
        return result

    def now(self, session: Session) -> datetime:
        """Give the database's time (aware, UTC, milliseconds)."""
        ms = session.connection().exec_driver_sql(_NOW[self.dialect]).scalar_one()
        return from_ms(ms) + self.clock_shift

    def check_room(self) -> None:
        """Raise DatabaseFull where the disk has no room for the next writes, or had none for one of the last."""
        if self.file is not None and not self.file.has_room:
            raise DatabaseFull(f"{_FULL}: {self.file.path}")
        ago = time.monotonic() - self._full_at
        if ago < FULL_SECONDS:
            raise DatabaseFull(f"{_FULL}: it refused a write {ago:.0f} s ago")

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        if self._writer is None:
            yield
            return
        with self._writer:
            yield

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Tell a database that cannot be used from our own mistakes: what leaves the block is DatabaseUnavailable."""
        if self.file is not None:
            self.file.check()
        try:
            yield
        except PoolTimeout as error:
            raise DatabaseUnavailable(f"no connection to the database came free: {error}") from error
        except DatabaseError as error:
            if _is_damaged(error):
                raise DatabaseUnavailable(
                    "the database file is damaged, or is no SQLite database; move it away and restore a backup "
                    f"(`gpuyard restore FOLDER`): {self._place(error)}"
                ) from error
            if getattr(error.orig, "sqlstate", None) == _NO_RIGHT:
                raise DatabaseUnavailable(f"the database does not let this user: {error.orig}") from error
            if isinstance(error, OperationalError) and (error.connection_invalidated or _is_away(error)):
                if _is_full(error) or (self.file is not None and not self.file.has_room):
                    self._full_at = time.monotonic()
                    raise DatabaseFull(f"{_FULL}: {self._place(error)}") from error
                what = "the database file cannot be used" if self.file else "the database does not answer"
                raise DatabaseUnavailable(f"{what}: {self._place(error)}") from error
            raise

    def _place(self, error: DatabaseError) -> str:
        return f"{self.file.path} ({error.orig})" if self.file else str(error.orig)


def _is_victim(error: BaseException) -> bool:
    """Tell a deadlock, a serialization failure or a busy SQLite from errors that would only come again."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state in {"40P01", "40001"} or "database is locked" in str(error.orig)


def _is_full(error: OperationalError) -> bool:
    """Whether there is no room for what was to be written."""
    return getattr(error.orig, "sqlstate", None) == _DISK_FULL or _SQLITE_FULL in str(error.orig)


def _is_away(error: OperationalError) -> bool:
    """Tell a database that cannot be used now from a statement that is wrong."""
    if error.orig is None:
        return False
    if "sqlite3" in type(error.orig).__module__:
        return any(words in str(error.orig) for words in _SQLITE_AWAY)
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state.startswith(("08", "57P", "53"))


def _is_damaged(error: DatabaseError) -> bool:
    """Whether a file is no database, or no whole one any more."""
    return getattr(error.orig, "sqlite_errorname", "").startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT"))


def _engine(url: str, pool_size: int) -> Engine:
    """Make an engine. Raises DatabaseUnavailable for a URL that leads nowhere."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except ArgumentError as error:
        raise DatabaseUnavailable(f"GPUYARD_DATABASE_URL is no URL of a database: {error}") from None
    except ValueError:  # it names what stands where the port is expected, and that may be of a password
        raise DatabaseUnavailable(
            "GPUYARD_DATABASE_URL cannot be read: what is neither a letter nor a digit in its password has to be "
            "percent-encoded (%2F for /), and its port is a number"
        ) from None
    except OSError as error:
        raise DatabaseUnavailable(f"there is no folder for the database: {plainly(error)}") from None
    if backend == "sqlite":
        engine = create_engine(parsed, pool_size=pool_size, max_overflow=0)
        event.listen(engine, "do_connect", _open_what_is_there)
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    if backend == "postgresql":
        engine = create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_size=pool_size,
            max_overflow=0,
            connect_args={"connect_timeout": 5, "application_name": "gpuyard", **_PATIENCE},
        )
        event.listen(engine, "connect", _prepare_postgresql)
        ping_after_a_rest(engine)
        return engine
    raise DatabaseUnavailable(f"GPUYARD_DATABASE_URL: {backend!r} is not supported; use sqlite:///… or postgresql://…")


def file_of(url: URL) -> DatabaseFile | None:
    """Return the file of a SQLite database; None: a server's database, or one in memory."""
    is_file = url.get_backend_name() == "sqlite" and url.database not in {None, "", ":memory:"}
    return DatabaseFile(Path(str(url.database))) if is_file else None


def _open_what_is_there(_dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
    """Have SQLite make no file: `app.db.sqlite_file` does, where one may be begun."""
    if arguments[0] != ":memory:":
        arguments[0] = f"{Path(arguments[0]).absolute().as_uri()}?mode=rw"
        options["uri"] = True


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not open transactions by itself: BEGIN IMMEDIATE is ours (PROTOCOL 1).
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    ours = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    if ours:  # another program's file is left as it is
        connection.execute("PRAGMA journal_mode = WAL")
    for pragma in ("foreign_keys = ON", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    connection.execute(_SERVERS_PATIENCE)
    connection.commit()  # what is set in a transaction that is rolled back is forgotten


def reachable(store: Store) -> bool:
    """Tell whether a trivial statement is answered."""
    with store.read() as session:
        return bool(session.connection().execute(text("SELECT 1")).scalar_one())
