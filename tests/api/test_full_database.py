"""The database's disk is full: each call says so, `/readyz` and doctor name it, and with room all goes on by itself."""

import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from app.cli import server_checks
from app.cli.connection import Address
from app.db import events
from app.db import store as store_module
from app.db.errors import DatabaseFull
from app.db.store import Store
from app.services import readiness
from tests.api_process import api_process
from tests.commands import Commands
from tests.databases import Databases
from tests.migrated import migrate
from tests.served import ADMIN_KEY
from tests.small_disk import small_disk
from tests.yards import new_yard

FULL = "the disk of the database is full"


@pytest.mark.timeout(180)
def test_sqlite_on_a_full_disk_is_called_that_and_goes_on_when_there_is_room(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    with small_disk(8) as disk:
        url = f"sqlite:///{disk.path}/gpuyard.db"
        migrate(url)
        with (
            api_process(url, tmp_path) as api,
            httpx.Client(base_url=api.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as http,
        ):
            assert http.get("/readyz").json()["parts"]["database"] == "ok"
            disk.fill()

            refused = http.post("/v1/pools", json={"name": "more"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "storage_full")
            assert "the disk of the server's database is full" in refused.json()["error"]["message"]
            assert http.get("/v1/pools").status_code == 200, "it can be read"
            until(lambda: http.get("/readyz").status_code == 503)
            assert http.get("/readyz").json()["parts"]["database"].startswith(FULL)
            assert str(disk.path) not in http.get("/readyz").text, "who shows no key learns no folder"
            line = database_line(api.url)
            assert (line.level, line.text) == ("red", FULL)
            assert line.do.startswith("make room on it")

            disk.make_room()
            until(lambda: http.get("/readyz").status_code == 200, seconds=60)
            assert http.post("/v1/pools", json={"name": "more"}).status_code == 200
            assert database_line(api.url).level == "ok"

        disk.fill()
        alone = Commands(tmp_path, {"GPUYARD_DATABASE_URL": url}).run("doctor", "--json", GPUYARD_RUNTIME="fake")
        found = {finding["part"]: finding for finding in alone.document["findings"]}
        assert found["database"]["text"].startswith(FULL), "though no server runs"


def database_line(url: str) -> Any:
    found = server_checks.check_server(Address(url, ADMIN_KEY, "environment"))
    return next(finding for finding in found if finding.part == "database")


@pytest.mark.postgres
def test_postgresql_on_a_full_disk_is_called_that_and_goes_on_when_there_is_room(
    postgres_databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    monkeypatch.setattr(store_module, "FULL_SECONDS", 0.5)
    with small_disk(32, owner=pwd.getpwnam("nobody").pw_uid) as disk:
        url = postgres_databases.copy_of(migrate)
        server, _, name = url.replace("+psycopg", "").partition("?")[0].rpartition("/")
        place = f"{server}/postgres?{url.partition('?')[2]}"
        moved = sql.SQL("ALTER DATABASE {} SET TABLESPACE small").format(sql.Identifier(name))
        back = sql.SQL("ALTER DATABASE {} SET TABLESPACE pg_default").format(sql.Identifier(name))
        with psycopg.connect(place, autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(str(disk.path)))
            try:
                admin.execute(moved)
                assert_named_and_over(url, disk, tmp_path, until)
            finally:
                admin.execute(back)
                admin.execute("DROP TABLESPACE small")


def assert_named_and_over(url: str, disk: Any, folder: Path, until: Callable[..., None]) -> None:
    store = Store(url)
    try:
        yard = new_yard(store, folder / "blobs")
        disk.fill()
        recorded = [events.Recorded("test", f"batch_{n}", "test", "org_1", {"text": "x" * 500}) for n in range(1000)]

        def write_much() -> None:
            while True:
                store.run(lambda session: events.record_all(session, recorded, now=store.now(session)))

        with pytest.raises(DatabaseFull, match=FULL):
            write_much()
        assert readiness.look(yard, for_anybody=True).parts["database"].startswith(FULL)
        disk.make_room()
        store.run(lambda session: events.record_all(session, recorded, now=store.now(session)))
        until(lambda: readiness.look(yard, for_anybody=True).ready)
    finally:
        store.close()
