"""The file of a SQLite database: that it is the one that was opened, and that no empty one takes its place.

SQLite makes a file that is not there. So a service whose file was removed would go on with the removed one, or with an
empty one, as if every batch had never been. Here nothing but `begin` makes a file, and a mark beside it says that there
was one.
"""

import glob
import logging
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from app import durable
from app.db.errors import DatabaseUnavailable
from app.os_errors import plainly

NEW = "`gpuyard migrate --new-database`"
ROOM_BYTES = 1024 * 1024
"""With less than this free, the next write may fail."""
_log = logging.getLogger("gpuyard.db")
_KEPT_WITH_IT = ("-wal", "-shm", "-journal")
_MARK = b"The database beside this file is gpuyard's. While this file is here, no empty one is begun in its place.\n"


class DatabaseFile:
    """The file at `path`, as one process knows it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._mark = self.path.with_name(f"{path.name}.made")
        self._opened: tuple[int, int] | None = None

    @property
    def paths(self) -> list[Path]:
        """The file, and those that SQLite and we keep beside it."""
        return sorted(self.path.parent.glob(f"{glob.escape(self.path.name)}*"))

    @property
    def has_content(self) -> bool:
        """Whether there is a file, and anything in it."""
        return self.path.exists() and self.path.stat().st_size > 0

    @property
    def has_room(self) -> bool:
        """Whether its disk has room for a few writes; where nobody can tell, it has."""
        try:
            return shutil.disk_usage(self.path.parent).free >= ROOM_BYTES
        except OSError:
            return True

    def check(self, *, is_written: bool = False) -> None:
        """Raise DatabaseUnavailable unless the file is there, and the one that this process opened first.

        `is_written`: a transaction was just committed into it. That stands where the file cannot be looked at, and
        is lost only where the file is gone or is another one.
        """
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if self._opened is not None:
                raise self._problem(
                    "the database file was removed while gpuyard ran; stop gpuyard, put the file back, start it again"
                ) from None
            self.refuse_lost()
            raise self._problem("there is no database yet; run `gpuyard migrate`") from None
        except OSError as error:
            if is_written:
                _log.warning("the database file cannot be looked at after a commit: %s", plainly(error))
                return
            raise DatabaseUnavailable(f"the database file cannot be used: {plainly(error)}") from None
        if found.st_size == 0:
            raise self._lost("is empty, it has 0 bytes")
        # The pool's connections keep the first file open, so its number is nobody else's meanwhile.
        this = (found.st_dev, found.st_ino)
        if self._opened is None:
            self._opened = this
        elif self._opened != this:
            raise self._problem(
                "the database file was replaced while gpuyard ran; start gpuyard again to use the new one"
            )

    def forget(self) -> None:
        """No connection is open any more: the next one is to whichever file there is."""
        self._opened = None

    def refuse_lost(self) -> None:
        """Raise DatabaseUnavailable where there was a database and is none."""
        had_one = self._mark.exists() or self.path.with_name(f"{self.path.name}-wal").exists()
        if not self.has_content and (self.path.exists() or had_one):
            raise self._lost("is empty, it has 0 bytes" if self.path.exists() else "is gone")

    def begin(self, *, new: bool) -> None:
        """Make the file unless it is there. `new`: also where there was one. Raises DatabaseUnavailable."""
        if new:
            self._mark.unlink(missing_ok=True)
        if self.has_content:
            return
        if not new:
            self.refuse_lost()
        for end in _KEPT_WITH_IT:
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        part = self.path.with_name(f"{self.path.name}.new")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(part)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # which writes the first page
        part.replace(self.path)  # nobody ever sees an empty one
        durable.sync(self.path.parent)

    def mark(self) -> None:
        """Note that there is a database."""
        if not self._mark.exists():
            durable.write(self._mark, _MARK)

    def refuse_another_programs(self, tables: list[str]) -> None:
        """Raise DatabaseUnavailable for tables without ours, or for none where there were some."""
        if tables:
            shown = ", ".join(sorted(tables)[:3])
            raise DatabaseUnavailable(
                "the database file belongs to another program; move it away, or name another file in "
                f"GPUYARD_DATABASE_URL: {self.path} has the tables {shown}"
            )
        if self._mark.exists():
            raise self._lost("has no table any more")

    def _lost(self, what: str) -> DatabaseUnavailable:
        return self._problem(
            f"the database file {what}; put it back, or restore a backup (`gpuyard restore FOLDER`). To begin an empty "
            f"database in its place, run {NEW}"
        )

    def _problem(self, text: str) -> DatabaseUnavailable:
        return DatabaseUnavailable(f"{text}: {self.path}")
