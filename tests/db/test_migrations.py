"""A database of any older version comes up to this one with all that is in it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Boolean, Column, Connection, Integer, MetaData, String, func, insert, select, text
from sqlmodel import Session, SQLModel

from app.db import migrating, schema
from app.db.store import Store
from app.db.tables import Batch

REVISIONS = [f"{number:04}" for number in range(1, int(schema.head()) + 1)]
ENDED_AT = 1_700_000_000_000


@pytest.fixture
def empty(database_url: str) -> Iterator[Store]:
    """A database without a table."""
    with closing(Store(database_url)) as found:
        yield found


def fill(connection: Connection, revision: str) -> set[str]:
    """Put a row into every table that there is at a revision; gives the tables' names."""
    found = MetaData()
    found.reflect(connection)
    rows: dict[str, dict[str, Any]] = {}
    for table in found.sorted_tables:
        if table.name == "alembic_version":
            continue
        values = {column.name: _value(column, rows, revision) for column in table.columns if _is_to_be_given(column)}
        if table.name == "batch":
            values |= {"state": "completed", "completed_at": ENDED_AT}
        keys = connection.execute(insert(table).values(values).returning(*table.primary_key.columns)).mappings().one()
        rows[table.name] = values | dict(keys)
    return set(rows)


def _is_to_be_given(column: Column[Any]) -> bool:
    counts_up = column.primary_key and isinstance(column.type, Integer)
    return not counts_up and (bool(column.foreign_keys) or (not column.nullable and column.server_default is None))


def _value(column: Column[Any], rows: dict[str, dict[str, Any]], revision: str) -> object:
    for key in column.foreign_keys:
        return rows[key.column.table.name][key.column.name]
    if isinstance(column.type, Boolean):
        return True
    if isinstance(column.type, String):
        return f"{column.table.name}-{column.name}-{revision}"
    return int(revision)


def test_what_each_older_version_stored_is_there_in_this_one(empty: Store) -> None:
    """Rows that are put in at a revision go through every later one, as they would on a machine that skips some."""
    made: dict[str, int] = {}
    for revision in REVISIONS:
        assert migrating.migrate(empty, to=revision) == revision
        with empty.engine.begin() as connection:
            for name in fill(connection, revision):
                made[name] = made.get(name, 0) + 1
    with empty.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
        for table in SQLModel.metadata.sorted_tables:
            assert connection.scalar(select(func.count()).select_from(table)) == made[table.name], table.name
        if empty.dialect == "sqlite":
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
    assert made["batch"] == len(REVISIONS)
    with Session(empty.engine) as session:
        for mapper in SQLModel._sa_registry.mappers:
            assert len(session.exec(select(mapper.class_)).all()) == made[mapper.class_.__tablename__]
        ends = session.exec(select(Batch.id, Batch.ended_at)).all()  # type: ignore[call-overload]
    before = {id_: at for id_, at in ends if id_ < f"batch-id-{'0009'}"}
    assert {at.timestamp() * 1000 for at in before.values()} == {ENDED_AT}


@pytest.mark.long
def test_counters_go_on_where_they_were(empty: Store) -> None:
    """A lease's id never comes again, whatever a revision did to its table (PROTOCOL 1)."""
    migrating.migrate(empty, to="0001")
    with empty.engine.begin() as connection:
        fill(connection, "0001")
        highest = connection.scalar(text("SELECT max(id) FROM lease"))
        connection.execute(text("DELETE FROM segment"))
        connection.execute(text("DELETE FROM lease"))
    migrating.migrate(empty)
    with empty.engine.begin() as connection:
        fill_leases = text(
            "INSERT INTO lease (job_id, batch_id, worker_id, state, claim_request, unstarted, spooled, missed_beats, "
            "granted_at, renewed_at, expires_at) SELECT job.id, job.batch_id, worker.id, 'held', 'x', false, false, 0, "
            "1, 1, 1 FROM job, worker RETURNING id"
        )
        assert connection.scalar(fill_leases) > highest
