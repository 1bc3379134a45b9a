"""A SQLite file that is not what it was: the service says so, and nothing takes the place of what is gone."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlmodel import Session, select

from app.db import migrating, schema
from app.db.store import DatabaseUnavailable, Store
from app.db.tables import Org
from tests.databases import Databases
from tests.migrated import migrate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database was made."""
    found = tmp_path / "gpuyard.db"
    migrate(f"sqlite:///{found}")
    return found


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store(f"sqlite:///{path}")) as opened:
        yield opened


def add(store: Store, name: str) -> None:
    with store.begin() as session:
        session.add(Org(id=name, name=name, created_at=store.now(session)))


def names(store: Store) -> list[str]:
    with store.read() as session:
        return list(session.exec(select(Org.name)))


def refused(path: Path, match: str, *, new: bool = False) -> str:
    """Neither a start nor a migration takes it; gives what they say."""
    with closing(Store(f"sqlite:///{path}")) as store:
        with pytest.raises(DatabaseUnavailable, match=match) as said:
            schema.check(store)
        with pytest.raises(DatabaseUnavailable, match=match):
            migrating.migrate(store, new=new)
    assert str(path) in str(said.value)
    assert str(path) not in said.value.reason
    return str(said.value)


def test_a_file_that_is_removed_is_missed_by_reads_and_writes_and_not_made_again(store: Store, path: Path) -> None:
    names(store)
    path.unlink()
    for use in (names, lambda store: add(store, "one")):
        with pytest.raises(DatabaseUnavailable, match=r"was removed while gpuyard ran.*put the file back"):
            use(store)
    assert not path.exists()


def test_one_that_is_put_back_is_used_again(store: Store, path: Path) -> None:
    add(store, "one")
    away = path.rename(path.with_name("away"))
    with pytest.raises(DatabaseUnavailable):
        names(store)
    away.rename(path)
    assert names(store) == ["one"]


def test_a_write_into_a_file_that_is_removed_meanwhile_is_not_taken_for_done(store: Store, path: Path) -> None:
    def write(session: Session) -> None:
        session.add(Org(id="one", name="one", created_at=store.now(session)))
        path.unlink()

    with pytest.raises(DatabaseUnavailable, match="was removed"):
        store.run(write)


@pytest.mark.parametrize("is_back", [True, False], ids=["there again", "where nobody can look"])
def test_a_commit_stands_unless_its_file_is_gone(
    store: Store, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_back: bool
) -> None:
    """The folder is moved away in the middle of a write; until it is back, a loop of links stands in its place."""
    folder, away = path.parent, tmp_path.with_name(f"{tmp_path.name}-away")

    def leave() -> None:
        folder.rename(away)
        folder.symlink_to(folder)

    def return_() -> None:
        folder.unlink()
        away.rename(folder)

    def write(session: Session) -> str:
        session.add(Org(id="one", name="one", created_at=store.now(session)))
        session.flush()
        leave()
        if is_back:
            return_()
        return "done"

    try:
        assert store.run(write) == "done"
        if not is_back:
            assert "cannot be looked at after a commit" in caplog.text
            with pytest.raises(DatabaseUnavailable, match="cannot be used"):
                names(store)
    finally:
        if folder.is_symlink():
            return_()
    assert names(store) == ["one"]


def test_another_file_in_its_place_is_not_taken_for_it(store: Store, path: Path, tmp_path: Path) -> None:
    names(store)
    other = tmp_path / "other.db"
    migrate(f"sqlite:///{other}")
    other.replace(path)
    with pytest.raises(DatabaseUnavailable, match=r"was replaced while gpuyard ran.*start gpuyard again"):
        add(store, "one")
    store.close()  # as a process that ends
    with closing(Store(f"sqlite:///{path}")) as again:
        add(again, "two")
        assert names(again) == ["two"]


@pytest.mark.parametrize("left", ["nothing", "the log", "0 bytes", "no table"])
def test_no_empty_database_is_begun_in_place_of_one_that_is_gone(path: Path, left: str) -> None:
    path.unlink()
    if left == "the log":
        path.with_name("gpuyard.db.made").unlink()  # as an older version left it
        path.with_name("gpuyard.db-wal").write_bytes(b"x")
    elif left == "0 bytes":
        path.touch()
    elif left == "no table":
        with closing(sqlite3.connect(path)) as made:
            made.execute("PRAGMA journal_mode = WAL")
    said = refused(path, "gpuyard migrate --new-database")
    assert "gpuyard restore" in said
    assert not path.exists() or left in {"0 bytes", "no table"}
    with closing(Store(f"sqlite:///{path}")) as store:
        migrating.migrate(store, new=True)
        assert names(store) == []
        add(store, "one")
    path.unlink()
    refused(path, "is gone")


def test_a_file_of_0_bytes_is_nobodys_database_though_nothing_else_is_there(tmp_path: Path) -> None:
    path = tmp_path / "gpuyard.db"
    path.touch()
    refused(path, "is empty, it has 0 bytes.*--new-database")


def test_a_new_database_does_not_take_the_place_of_one_that_is_there(store: Store, path: Path) -> None:
    add(store, "one")
    migrating.migrate(store, new=True)
    assert names(store) == ["one"]


@pytest.mark.parametrize("damage", ["garbage", "half", "a few bytes", "zeros"])
@pytest.mark.parametrize("new", [False, True])
def test_a_damaged_file_is_named_and_left_as_it_is(path: Path, damage: str, *, new: bool) -> None:
    whole = path.read_bytes()
    content = {
        "garbage": b"no database" * 1000,
        "half": whole[: len(whole) // 2],
        "a few bytes": whole[:50],
        "zeros": bytes(len(whole)),
    }[damage]
    path.write_bytes(content)
    refused(path, "damaged, or is no SQLite database; move it away and restore a backup", new=new)
    assert path.read_bytes() == content


@pytest.mark.parametrize("new", [False, True])
def test_a_file_of_another_program_is_named_and_left_as_it_is(tmp_path: Path, *, new: bool) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE moz_places (id INTEGER)")
    said = refused(path, "belongs to another program; move it away", new=new)
    assert "moz_places" in said
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("moz_places",)]


def test_another_program_that_uses_alembic_is_no_newer_gpuyard(database_url: str) -> None:
    with closing(Store(database_url)) as store:
        if store.file is not None:
            store.file.begin(new=False)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32))")
            connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('3f2a9c1b7d4e')")
        for refuse in (schema.check, migrating.migrate):
            with pytest.raises(schema.SchemaMismatch, match="another program"):
                refuse(store)


def test_a_database_made_by_an_older_version_is_marked_when_it_is_brought_up(path: Path, tmp_path: Path) -> None:
    old = tmp_path / "old" / "gpuyard.db"
    old.parent.mkdir()
    shutil.copyfile(path, old)
    migrate(f"sqlite:///{old}")
    old.unlink()
    refused(old, "is gone")


def test_only_the_first_start_makes_the_file(sqlite_databases: Databases) -> None:
    with closing(Store(sqlite_databases.empty())) as store:
        assert store.file is not None
        with pytest.raises(schema.SchemaMismatch, match="gpuyard migrate"):
            schema.check(store)
        with pytest.raises(DatabaseUnavailable, match="there is no database yet; run `gpuyard migrate`"):
            names(store)
        assert not store.file.path.exists()
        migrating.migrate(store)
        assert store.file.path.stat().st_mode & 0o777 == 0o600
        assert names(store) == []


@pytest.mark.parametrize("name", ["a b", "100%", "what?x=1", "a#b", "ü"])
def test_any_name_of_a_file_is_opened(tmp_path: Path, name: str) -> None:
    with closing(Store(f"sqlite:///{tmp_path}/{name.replace('?', '%3F')}/x.db")) as store:
        migrating.migrate(store)
        add(store, "one")
        assert store.file is not None
        assert store.file.path.exists()
