"""Connections to PostgreSQL that are lost while nobody uses them."""

import time
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import text

from app.db.rested import REST_SECONDS
from app.db.store import DatabaseUnavailable, Store
from tests.databases import Databases

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(postgres_databases: Databases) -> str:
    return postgres_databases.empty()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.close()


def backend(store: Store) -> int:
    with store.read() as session:
        return int(session.connection().execute(text("SELECT pg_backend_pid()")).scalar_one())


def end(url: str, pid: int) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 30000)", (pid,))


def test_one_that_was_lost_while_it_rested_is_replaced_and_nobody_hears_of_it(store: Store, url: str) -> None:
    lost = backend(store)
    end(url, lost)
    time.sleep(REST_SECONDS)
    assert backend(store) != lost


def test_one_in_steady_use_is_not_asked_so_a_lost_one_fails_once(store: Store, url: str) -> None:
    """If it fails to fail, it was asked; a machine that stalled for the whole rest proves nothing and tries again."""
    for _ in range(10):
        lost = backend(store)
        used_at = time.monotonic()
        end(url, lost)
        if time.monotonic() - used_at < REST_SECONDS / 2:
            with pytest.raises(DatabaseUnavailable):
                backend(store)
            assert backend(store) != lost
            return
    pytest.fail("this machine stalls for half a second at a time")
