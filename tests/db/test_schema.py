"""The schema goes from empty to this version, and another version is refused with the command that mends it."""

import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlmodel import SQLModel

from app.db import migrating, schema, tables
from app.db.store import DatabaseUnavailable, Store


def test_migrating_from_empty_gives_exactly_the_tables_of_the_code(store: Store) -> None:
    assert tables.Batch.__table__ is SQLModel.metadata.tables["batch"]
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []


def test_an_empty_database_is_refused_with_the_command_that_mends_it(database_url: str) -> None:
    with closing(Store(database_url)) as empty, pytest.raises(schema.SchemaMismatch, match="gpuyard migrate"):
        schema.check(empty)


def test_a_process_may_wait_for_whoever_brings_the_schema_up(database_url: str) -> None:
    with closing(Store(database_url)) as empty, closing(Store(database_url)) as other:
        migration = threading.Timer(0.2, migrating.migrate, [other])
        migration.start()
        try:
            schema.check(empty, wait_seconds=30)
        finally:
            migration.join()


def test_a_newer_schema_is_refused_by_serve_and_by_migrate(store: Store) -> None:
    schema.check(store)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for refuse in (schema.check, migrating.migrate):
        with pytest.raises(schema.SchemaMismatch, match="Upgrade gpuyard"):
            refuse(store)


def test_migrating_twice_changes_nothing(store: Store) -> None:
    assert migrating.migrate(store) == schema.head()


def test_the_schema_that_is_looked_for_is_the_one_that_alembic_ends_at() -> None:
    scripts = ScriptDirectory(str(Path(migrating.__file__).parent / "migrations"))
    assert schema.head() == scripts.get_current_head()
    for revision in scripts.walk_revisions():
        schema.refuse_newer(revision.revision)


def test_of_a_database_that_is_away_it_is_said_that_it_is_away() -> None:
    """`/readyz` answers 503 for it, and a 500 for what nobody expects."""
    store = Store("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable):
        schema.check(store)
    store.close()
