"""Whose open transaction holds events back: it is named, also to a database user who may see little of others."""

import time
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from app.db import events, open_transactions
from app.db.open_transactions import OpenTransaction
from app.db.store import Store
from tests.databases import Databases
from tests.migrated import migrate

SECONDS = 20.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "LONG_SECONDS", 0.3)


@pytest.fixture
def on_postgres(postgres_databases: Databases) -> Iterator[Store]:
    opened = Store(postgres_databases.copy_of(migrate))
    yield opened
    opened.close()


def psql(store: Store) -> psycopg.Connection:
    """Somebody's own connection to the same database."""
    url = store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(url, application_name="psql of somebody")


def longest(store: Store) -> OpenTransaction | None:
    with store.read() as session:
        return open_transactions.longest(session)


def found_in_time(store: Store) -> OpenTransaction:
    end = time.monotonic() + SECONDS
    while (found := longest(store)) is None:
        assert time.monotonic() < end, "nothing was found"
        time.sleep(0.05)
    return found


@pytest.mark.postgres
def test_one_that_has_written_is_named_and_one_that_only_reads_holds_nothing_back(on_postgres: Store) -> None:
    with psql(on_postgres) as reads, psql(on_postgres) as writes:
        reads.execute("SELECT 1")
        writes.execute("CREATE TABLE left_open ()")
        found = found_in_time(on_postgres)
        assert found[:2] == (writes.info.backend_pid, "psql of somebody")
        assert found.database == make_url(on_postgres.engine.url).database
        assert found.state == "idle in transaction"
        writes.rollback()
        assert longest(on_postgres) is None
        assert reads.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


@pytest.mark.postgres
def test_one_that_is_none_of_this_users_is_as_old_as_the_events_it_holds_back(on_postgres: Store) -> None:
    """A role sees of other roles' sessions neither since when they are open nor what they do."""
    with on_postgres.begin() as session:
        session.connection().execute(text("DROP ROLE IF EXISTS sees_little"))
        session.connection().execute(text("CREATE ROLE sees_little LOGIN"))
        session.connection().execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO sees_little"))
    url = on_postgres.engine.url.set(username="sees_little").render_as_string(hide_password=False)
    plain = Store(url)
    try:
        with psql(on_postgres) as writes:
            writes.execute("CREATE TABLE left_open ()")
            with on_postgres.begin() as session:
                events.record(session, now=on_postgres.now(session), type="x", subject="x", actor="test")
            found = found_in_time(plain)
            assert found.pid == writes.info.backend_pid
            assert found.state is None
            writes.rollback()
        assert longest(plain) is None
    finally:
        plain.close()
        with on_postgres.begin() as session:
            session.connection().execute(text("DROP OWNED BY sees_little"))
            session.connection().execute(text("DROP ROLE sees_little"))


def test_on_sqlite_nothing_is_held_back(sqlite_databases: Databases) -> None:
    store = Store(sqlite_databases.copy_of(migrate))
    try:
        assert longest(store) is None
    finally:
        store.close()
