from app.db.store import Store
from tests.databases import Databases
from tests.migrated import migrate


def test_what_one_test_compiled_serves_the_next(databases: Databases) -> None:
    first, second = (Store(databases.copy_of(migrate)) for _ in range(2))
    for store in (first, second):
        with store.read() as session:
            store.now(session)
    assert first.engine._compiled_cache is second.engine._compiled_cache
    assert first.engine.dialect is second.engine.dialect
    assert first.engine.url != second.engine.url
    for store in (first, second):
        store.close()


def test_a_databases_file_that_is_thrown_away_is_not_synced(sqlite_databases: Databases) -> None:
    store = Store(sqlite_databases.copy_of(migrate))
    with store.begin() as session:
        assert session.connection().exec_driver_sql("PRAGMA synchronous").scalar_one() == 0
        assert session.connection().exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    store.close()
