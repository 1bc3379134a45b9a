"""The folder of a backup, and where one is put back: what is refused, and told before anything is lost."""

import fcntl
import json
import os
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from app.api import backing_up
from app.api.__main__ import main
from app.blobs.local import LocalBlobs
from app.db import backups as backups_sql
from app.db import schema
from app.db.store import Store
from app.services import backups, content_store, files
from app.services.backups import BackupRefused, Made
from app.services.context import Yard
from config.settings import ServerSettings
from tests.damaged import WAYS, damage
from tests.databases import Databases
from tests.migrated import migrate
from tests.services import test_backups as room
from tests.services.test_backups import ON_SQLITE, put_back, saved
from tests.yards import USER, batch, input_file, new_yard, validated

data, yard, fresh = room.data, room.yard, room.fresh


@ON_SQLITE
def test_what_others_left_among_the_contents_is_passed_over(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path
) -> None:
    """As `rsync` does when it is killed."""
    key = files.content(yard, USER, input_file(yard, 1)).blob_key
    saved(yard, data, tmp_path)
    (found,) = (tmp_path / "backup" / "blobs").glob("??/??/*")
    stray = found.with_name(f".{key}.Xk3f9a")
    stray.touch()
    assert saved(yard, data, tmp_path).contents == 1
    assert put_back(fresh, tmp_path).blobs.exists(key)
    assert stray.exists(), "it is nobody's to delete"


@ON_SQLITE
def test_at_one_backup_there_is_one_at_a_time(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    """A cron line does not wait for the one before: it would drop contents that the other has just copied."""
    saved(yard, data, tmp_path)
    other = os.open(tmp_path / "backup", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        for begin in (lambda: saved(yard, data, tmp_path), lambda: put_back(fresh, tmp_path)):
            with pytest.raises(BackupRefused, match="another backup"):
                begin()
    finally:
        os.close(other)
    put_back(fresh, tmp_path)


@ON_SQLITE
def test_where_there_is_nothing_nothing_is_backed_up_and_nothing_made(
    sqlite_databases: Databases, yard: Yard, data: Path, tmp_path: Path
) -> None:
    with closing(Store(sqlite_databases.empty())) as nowhere:
        with pytest.raises(schema.SchemaMismatch, match="no gpuyard at these settings"):
            backups.make(replace(yard, store=nowhere), data, tmp_path / "backup")
        assert not Path(nowhere.engine.url.database or "").exists()
    assert not (tmp_path / "backup").exists()


def test_nothing_was_put_back_where_there_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root's shell lacks the services' settings: a database made there is not theirs."""
    monkeypatch.delenv("GPUYARD_DATABASE_URL", raising=False)
    assert main(["migrate", "--restored", "--data-dir", str(tmp_path / "data")]) == 1
    assert "no gpuyard at these settings" in capsys.readouterr().err
    assert not (tmp_path / "data" / "gpuyard.db").exists()


@ON_SQLITE
def test_nothing_that_is_there_is_overwritten(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    validated(yard)
    folder = tmp_path / "backup"
    with pytest.raises(BackupRefused, match="no whole backup"):
        backups.put_back(fresh, tmp_path / "fresh", folder)
    saved(yard, data, tmp_path)
    with pytest.raises(BackupRefused, match="empty one"):
        backups.put_back(yard, data, folder)
    with pytest.raises(BackupRefused, match="move the folder away"):
        backups.put_back(fresh, data, folder)
    with pytest.raises(BackupRefused, match="neither empty nor a backup"):
        backups.make(yard, data, data)
    manifest = json.loads((folder / "backup.json").read_text())
    (folder / "backup.json").write_text(json.dumps(manifest | {"revision": "9999"}))
    with pytest.raises(schema.SchemaMismatch, match="newer gpuyard"):
        backups.put_back(fresh, tmp_path / "fresh", folder)


@ON_SQLITE
def test_a_key_that_is_not_the_backups_is_not_overwritten(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    data.mkdir(exist_ok=True)
    (data / "webhooks.key").write_bytes(b"k" * 32)
    saved(yard, data, tmp_path)
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "webhooks.key").write_bytes(b"o" * 32)
    with pytest.raises(BackupRefused, match="not the backup's"):
        put_back(fresh, tmp_path)
    assert (tmp_path / "fresh" / "webhooks.key").read_bytes() == b"o" * 32
    assert backups_sql.is_empty(fresh.store)


@pytest.mark.parametrize("url", ["postgresql://u:s3cret@h/d", "postgresql+psycopg://u@/d?host=/run&password=s3cret"])
def test_no_password_stands_in_the_arguments_of_postgresqls_programs(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody on the machine reads those."""
    program = tmp_path / "pg_dump"
    program.write_text('#!/bin/sh\necho "$*" >&2\necho "$PGPASSWORD" >&2\nexit 3\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(backups_sql.DumpFailed) as told:
        backups_sql._postgres(make_url(url), "pg_dump")
    arguments, password = str(told.value).splitlines()
    assert "s3cret" not in arguments
    assert password == "s3cret"  # noqa: S105 - a test's


def test_what_is_damaged_is_named_with_its_batch_its_place_and_what_to_do(
    sqlite_databases: Databases, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = sqlite_databases.copy_of(migrate)
    settings = ServerSettings(database_url=SecretStr(url), data_dir=data)
    with closing(Store(url)) as store:
        yard = new_yard(store, data / "blobs")
        batch_id = validated(yard)
        file_id = batch(yard, batch_id).input_file_id
        key = files.content(yard, USER, file_id).blob_key
        input_file(yard, 2)
        good = damage(yard.blobs, key, WAYS["flipped"])
    place = f"blobs/{key[:2]}/{key[2:4]}/{key}"

    def said(folder: str) -> tuple[str, str]:
        assert backing_up.run("backup", settings, tmp_path / folder, as_json=False) == 1
        output = capsys.readouterr()
        assert f"{file_id} (input.jsonl) of {batch_id}: {data / place}" in output.err
        assert "gpuyard doctor --contents" in output.err
        return output.out, output.err

    out, err = said("without")
    assert "1 of 2 contents" in out
    assert "no whole copy" in err
    LocalBlobs(data / "blobs").put(key, [good])
    assert backing_up.run("backup", settings, tmp_path / "whole", as_json=False) == 0
    assert "2 contents" in capsys.readouterr().out
    LocalBlobs(data / "blobs").delete(key)
    out, err = said("whole")
    assert "2 contents" in out
    assert f"from {tmp_path / 'whole' / 'blobs'}" in err


@pytest.mark.parametrize("place", ["/dev/full/backup", "/proc/backup"])
def test_a_place_that_takes_no_backup_is_told_in_one_line(
    place: str, sqlite_databases: Databases, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ServerSettings(database_url=SecretStr(sqlite_databases.copy_of(migrate)), data_dir=data)
    assert backing_up.run("backup", settings, Path(place), as_json=False) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_database_that_could_not_be_copied_says_so(sqlite_databases: Databases, tmp_path: Path) -> None:
    with (
        closing(Store(sqlite_databases.copy_of(migrate))) as store,
        pytest.raises(backups_sql.DumpFailed, match="was not copied to"),
    ):
        backups_sql.copy(store, tmp_path / "no folder" / "gpuyard.db")


@ON_SQLITE
def test_a_backup_of_another_kind_of_database_is_refused(yard: Yard, data: Path, tmp_path: Path) -> None:
    saved(yard, data, tmp_path)
    folder = tmp_path / "backup"
    manifest = json.loads((folder / "backup.json").read_text())
    other = "sqlite" if yard.store.dialect == "postgresql" else "postgresql"
    (folder / "backup.json").write_text(json.dumps(manifest | {"database": other}))
    with pytest.raises(BackupRefused, match=f"backup of {other}"):
        backups.put_back(yard, data, folder)


@pytest.mark.parametrize("databases", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
def test_without_postgresqls_programs_nothing_is_put_back_halfway(
    fresh: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents that lie there already would be in the way of the next try."""
    folder = tmp_path / "backup"
    LocalBlobs(folder / "blobs").put("ab" * 16, [b"a content"])
    made = Made("2026-11-30T00:00:00+00:00", schema.head(), "postgresql", contents=1, bytes=9, copied=1)
    (folder / "backup.json").write_text(json.dumps(asdict(made)))
    (folder / "gpuyard.dump").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(backups_sql.DumpFailed, match="no pg_restore here"):
        put_back(fresh, tmp_path)
    assert not (tmp_path / "fresh").exists()


@pytest.mark.parametrize("left", [None, b"", b"text", 4096, 65_536], ids=["gone", "empty", "text", "a page", "a half"])
@ON_SQLITE
def test_a_copy_that_is_damaged_is_told_before_contents_lie_in_the_way_of_a_whole_one(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path, left: bytes | int | None
) -> None:
    validated(yard)
    saved(yard, data, tmp_path)
    copy = tmp_path / "backup" / "gpuyard.db"
    whole = copy.read_bytes()
    copy.unlink()
    if left is not None:
        copy.write_bytes(left if isinstance(left, bytes) else whole[:left])
    with pytest.raises(backups_sql.DumpFailed, match=r"gpuyard\.db"):
        put_back(fresh, tmp_path)
    assert not (tmp_path / "fresh").exists()
    copy.write_bytes(whole)
    put_back(fresh, tmp_path)


@ON_SQLITE
def test_the_keys_of_the_backup_before_are_whole_until_the_new_ones_are(yard: Yard, data: Path, tmp_path: Path) -> None:
    """Whoever copies the folder elsewhere meanwhile, and whoever cuts it off, has the one or the other."""
    data.mkdir(exist_ok=True)
    (data / "webhooks.key").write_bytes(b"k" * 32)
    saved(yard, data, tmp_path)
    with (tmp_path / "backup" / "webhooks.key").open("rb") as reader:
        (data / "webhooks.key").write_bytes(b"o" * 32)
        saved(yard, data, tmp_path)
        assert reader.read() == b"k" * 32
    assert (tmp_path / "backup" / "webhooks.key").read_bytes() == b"o" * 32


def test_the_marker_of_the_store_goes_with_the_backup(yard: Yard, data: Path, tmp_path: Path, fresh: Yard) -> None:
    content_store.settle(yard)
    saved(yard, data, tmp_path)
    back = put_back(fresh, tmp_path)
    assert back.blobs.identity() == yard.blobs.identity()
    content_store.settle(back)


@pytest.mark.parametrize("kept", [0, 8192], ids=["all of it", "but its first pages"])
def test_a_database_that_is_damaged_itself_is_told_in_one_line(
    sqlite_databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: int,
) -> None:
    url = sqlite_databases.copy_of(migrate)
    database = Path(make_url(url).database or "")
    content = database.read_bytes()
    database.write_bytes(content[:kept] + os.urandom(len(content) - kept))
    monkeypatch.setenv("GPUYARD_DATABASE_URL", url)
    assert main(["backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
