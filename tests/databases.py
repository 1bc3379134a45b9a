"""Databases for tests: an empty one, or a copy of one that was built once (a migrated schema, say)."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from tests.cluster import Cluster

ON_POSTGRES_LATER = pytest.mark.parametrize(
    "databases", ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])], indirect=True
)
"""For tests that take seconds and are about something else: on SQLite by default, on PostgreSQL by `make test-long`."""


class Databases(Protocol):
    """A place that gives databases to one test and takes them back."""

    kind: str

    def empty(self) -> str:
        """Give the URL of a new, empty database."""
        ...

    def copy_of(self, build: Callable[[str], None]) -> str:
        """Give the URL of a new copy of the database that `build(url)` made out of an empty one.

        `build` runs once in a session and kind, whoever asks first. It closes its connections.
        """
        ...


class SqliteDatabases:
    """Files in one folder; the templates outlive a test, the copies need no clearing up."""

    kind = "sqlite"

    def __init__(self, folder: Path, templates: dict[object, Path], template_folder: Path) -> None:
        """Put files into `folder`, and what is built once into `template_folder`."""
        self._folder = folder
        self._templates = templates
        self._template_folder = template_folder
        self._made = 0

    def empty(self) -> str:
        """Give the URL of a file that does not exist yet."""
        return f"sqlite:///{self._next()}"

    def copy_of(self, build: Callable[[str], None]) -> str:
        """Give the URL of a copy of what `build` made."""
        if build not in self._templates:
            template = self._template_folder / f"template-{len(self._templates)}.db"
            build(f"sqlite:///{template}")
            self._templates[build] = template
        path = self._next()
        # SQLite's own copy, because the newest pages may still lie in the write-ahead log.
        with closing(sqlite3.connect(self._templates[build])) as source, closing(sqlite3.connect(path)) as copy:
            source.backup(copy)
        return f"sqlite:///{path}"

    def _next(self) -> Path:
        self._made += 1
        return self._folder / f"gpuyard-{self._made}.db"


class PostgresDatabases:
    """Databases of the session's cluster; `close` drops what one test was given."""

    kind = "postgres"

    def __init__(self, cluster: Cluster, templates: dict[object, str]) -> None:
        """Make databases in `cluster`; `templates` is the session's memory of what was built."""
        self.cluster = cluster
        self._templates = templates
        self._given: list[str] = []

    def empty(self) -> str:
        """Give the URL of a new database without a table."""
        self._given.append(self.cluster.create())
        return self.cluster.url(self._given[-1])

    def copy_of(self, build: Callable[[str], None]) -> str:
        """Give the URL of a copy of what `build` made."""
        if build not in self._templates:
            template = self.cluster.create()
            build(self.cluster.url(template))
            self._templates[build] = template
        self._given.append(self.cluster.create(self._templates[build]))
        return self.cluster.url(self._given[-1])

    def close(self) -> None:
        """Drop every database given."""
        while self._given:
            self.cluster.drop(self._given.pop())
