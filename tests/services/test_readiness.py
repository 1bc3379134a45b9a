"""What readiness says of a transaction that somebody left open: to anybody its process, to the operator its name."""

import time
from pathlib import Path

import psycopg
import pytest

from app.db import open_transactions
from app.db.store import Store
from app.services import readiness
from app.services.context import Yard
from app.services.readiness import Readiness
from tests.databases import Databases
from tests.migrated import migrate
from tests.yards import new_yard

SECONDS = 20.0


@pytest.mark.postgres
def test_an_open_transaction_is_named_and_makes_nothing_unready(
    postgres_databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "LONG_SECONDS", 0.3)
    store = Store(postgres_databases.copy_of(migrate))
    try:
        yard = new_yard(store, tmp_path / "blobs")
        url = store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, application_name="psql of somebody") as left_open:
            left_open.execute("CREATE TABLE left_open ()")
            pid = str(left_open.info.backend_pid)
            told, found = (_degraded(yard, for_anybody=anybody) for anybody in (True, False))
            assert told.ready
            assert found.ready
            assert pid in told.degraded["events"]
            assert "somebody" not in told.degraded["events"]
            assert f"pid {pid} (psql of somebody, user " in found.degraded["events"]
            assert "idle in transaction" in found.degraded["events"]
            left_open.rollback()
        assert readiness.look(yard, for_anybody=True).degraded == {}
    finally:
        store.close()


def _degraded(yard: Yard, *, for_anybody: bool) -> Readiness:
    end = time.monotonic() + SECONDS
    while not (found := readiness.look(yard, for_anybody=for_anybody)).degraded:
        assert time.monotonic() < end, "it was not found"
        time.sleep(0.05)
    return found
