"""A database that cannot be used now is told from a statement that is wrong: the first is worth another try."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, select

from app.db.store import DatabaseUnavailable, Store
from app.db.tables import Org
from tests.databases import Databases
from tests.interleaving import doing
from tests.migrated import migrate


@pytest.fixture
def sqlite(sqlite_databases: Databases) -> Iterator[Store]:
    opened = Store(sqlite_databases.copy_of(migrate))
    yield opened
    opened.close()


def test_what_was_read_may_be_used_after_the_transaction(store: Store) -> None:
    with store.begin() as session:
        session.add(Org(id="org_1", name="n", created_at=store.now(session)))
    with store.read() as session:
        org = session.exec(select(Org)).one()
    assert (org.id, org.name) == ("org_1", "n")


def test_two_who_read_before_they_write_queue_on_sqlite(sqlite: Store) -> None:
    """PROTOCOL 1. With a deferred transaction the second one's write fails at once: "database is locked"."""
    tries: list[int] = []

    def work(session: Session) -> None:
        found = len(session.exec(select(Org)).all())
        tries.append(found)
        time.sleep(0.05)  # as long as the other one needs to have read, too, if it may
        session.add(Org(id=f"org_{found}", name=f"n{found}", created_at=sqlite.now(session)))

    doers = [doing(lambda: sqlite.run(work)) for _ in range(2)]
    for doer in doers:
        doer.result()
    assert tries == [0, 1]


def test_a_full_disk_is_a_database_that_is_away(sqlite: Store) -> None:
    def fill(session: Session) -> None:
        connection = session.connection()
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        for number in range(1000):
            session.add(Org(id=f"org_{number}", name="n" * 1000 + str(number), created_at=sqlite.now(session)))
        session.flush()

    with pytest.raises(DatabaseUnavailable, match="full"):
        sqlite.run(fill)


@pytest.mark.parametrize("place", ["u:p@w:s3cret/y@db/x", "u:pw@db:s3cret/x"])
def test_a_url_that_cannot_be_read_is_told_without_its_password(place: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="percent-encoded") as caught:
        Store(f"postgresql+psycopg://{place}")
    assert "s3c" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_a_database_that_is_away(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/gone/x.db")
    (tmp_path / "gone").rmdir()
    with pytest.raises(DatabaseUnavailable, match="there is no database yet"), store.read():
        pass
    store.close()


def test_a_server_that_is_not_there_is_a_database_that_is_away() -> None:
    store = Store("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable), store.read() as session:
        store.now(session)
    store.close()


def test_a_wrong_statement_is_our_bug(sqlite: Store) -> None:
    with pytest.raises(OperationalError), sqlite.read() as session:
        session.connection().exec_driver_sql("SELECT nothing FROM nowhere")
