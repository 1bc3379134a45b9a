"""A backup is one moment, whole, of a yard that goes on; put back, it takes nothing for what it is not."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import select

from app.blobs.local import LocalBlobs
from app.db import backups as backups_sql
from app.db import schema
from app.db.store import Store
from app.db.tables import Blob
from app.domain.errors import Conflict, NotFound
from app.domain.leases import LeaseVerdict
from app.schemas.segments import PartVerdict
from app.services import backups, files, results
from app.services.backups import Made
from app.services.context import Yard
from app.services.damage import note as note_damage
from tests.damaged import WAYS, damage
from tests.databases import Databases, PostgresDatabases
from tests.migrated import migrate
from tests.yards import (
    USER,
    Controller,
    Machine,
    assert_sound,
    batch,
    events,
    input_file,
    later,
    machine,
    new_yard,
    result_files,
    validated,
)

ON_SQLITE = pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
"""What no statement decides that another test does not run on both."""

BOTH_LATER = pytest.mark.parametrize(
    "databases", ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])], indirect=True
)
"""What dumps twice, which takes seconds."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of the yard."""
    return tmp_path / "data"


@pytest.fixture
def yard(databases: Databases, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    if isinstance(databases, PostgresDatabases):
        monkeypatch.setenv("PATH", databases.cluster.path)
    with closing(Store(databases.copy_of(migrate))) as store:
        yield new_yard(store, data / "blobs")


@pytest.fixture
def fresh(databases: Databases, tmp_path: Path, yard: Yard) -> Iterator[Yard]:
    """Where a backup is put back: an empty database, and no contents."""
    with closing(Store(databases.empty())) as store:
        yield replace(yard, store=store, blobs=LocalBlobs(tmp_path / "fresh" / "blobs"))


def saved(yard: Yard, data: Path, tmp_path: Path) -> Made:
    return backups.make(yard, data, tmp_path / "backup")


def put_back(fresh: Yard, tmp_path: Path) -> Yard:
    backups.put_back(fresh, tmp_path / "fresh", tmp_path / "backup")
    schema.check(fresh.store)
    return fresh


def blob_keys(yard: Yard) -> set[str]:
    with yard.store.read() as session:
        return set(session.exec(select(Blob.key).where(Blob.put_at.is_not(None))))  # type: ignore[union-attr]


def test_what_ran_goes_on_where_the_backup_was(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    batch_id = validated(yard, 8)
    one = machine(yard)
    first, second = one.claim(want=8).grants
    one.hand_in(batch_id, {first.lease_id: [0, 1]})
    saved(yard, data, tmp_path)
    one.finish(batch_id, second)
    back = put_back(fresh, tmp_path)
    later(back, 1)
    one.yard = back
    assert one.beat(first.lease_id, second.lease_id).leases == dict.fromkeys(one.grants, LeaseVerdict.RENEWED)
    one.hand_in(batch_id, {first.lease_id: [2, 3]}, ends=[first.lease_id])
    one.finish(batch_id, second)
    Controller(back).works()
    assert [line["custom_id"] for line in result_files(back, batch_id)[0]] == [f"row-{n}" for n in range(8)]
    assert_sound(back)


def test_a_lease_given_after_the_backup_is_nobodys_and_its_number_never_comes_again(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path
) -> None:
    batch_id = validated(yard, 8)
    one = machine(yard)
    saved(yard, data, tmp_path)
    (old,) = one.claim().grants
    one.hand_in(batch_id, {old.lease_id: [0]})
    back = put_back(fresh, tmp_path)
    later(back, 1)
    one.yard = back
    (new,) = one.claim().grants
    assert new.first_row == old.first_row
    assert new.lease_id > old.lease_id + 1_000_000
    assert one.beat(old.lease_id, new.lease_id).leases[old.lease_id] == LeaseVerdict.STALE
    assert one.hand_in(batch_id, {old.lease_id: [1]}).parts == {old.lease_id: PartVerdict.STALE}
    one.finish(batch_id, new)
    (rest,) = one.claim().grants
    one.finish(batch_id, rest)
    Controller(back).works()
    assert len(result_files(back, batch_id)[0]) == 8
    assert_sound(back)


@ON_SQLITE
def test_without_the_jump_an_old_lease_would_be_taken_for_a_new_one(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the jump is for: the same worker, the same number, another shard."""
    validated(yard, 8)
    one = machine(yard)
    saved(yard, data, tmp_path)
    old = one.claim(want=8).grants[-1]
    monkeypatch.setattr(backups_sql, "jump", lambda _: None)
    back = put_back(fresh, tmp_path)
    later(back, 1)
    one.yard = back
    assert old.lease_id in {grant.lease_id for grant in one.claim(want=8).grants}


@ON_SQLITE
def test_a_worker_that_joined_after_the_backup_is_unknown(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    saved(yard, data, tmp_path)
    two = machine(yard, "two")
    two.yard = put_back(fresh, tmp_path)
    with pytest.raises(NotFound) as unknown:
        two.beat()
    assert unknown.value.code == "no_worker"
    two.hello()
    two.beat()


@ON_SQLITE
def test_a_worker_of_the_backup_keeps_its_name_from_nobody_until_it_is_heard_again(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path
) -> None:
    """The state folders of workers are in no backup, so a lost machine's worker comes as a new install."""
    batch_id = validated(yard, 8)
    lost, running = machine(yard, "lost"), machine(yard, "running")
    (grant,) = running.claim().grants
    saved(yard, data, tmp_path)
    back = put_back(fresh, tmp_path)
    later(back, 1)
    running.yard = back
    assert running.beat(grant.lease_id).leases == {grant.lease_id: LeaseVerdict.RENEWED}
    with pytest.raises(Conflict, match="is alive"):
        Machine(back, "running", install_id="another").hello()
    assert Machine(back, "lost", install_id="another").hello().worker_id == lost.id
    with pytest.raises(Conflict, match="superseded"):
        replace(lost, yard=back).beat()
    running.finish(batch_id, grant)


@ON_SQLITE
def test_leases_of_the_backup_are_not_overdue_when_it_is_put_back(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path
) -> None:
    """The hours since are the control plane's own absence (PROTOCOL 4)."""
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    saved(yard, data, tmp_path)
    back = put_back(fresh, tmp_path)
    later(back, 5 * 3600, listening=False)
    later(back, 1)
    one.yard = back
    assert one.beat(grant.lease_id).leases == {grant.lease_id: LeaseVerdict.RENEWED}


@BOTH_LATER
def test_whatever_is_written_meanwhile_each_row_of_the_copy_has_its_content(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path
) -> None:
    stop = threading.Event()

    def users() -> None:
        while not stop.is_set():
            with suppress(Exception):
                file_id = input_file(yard, 2)
                files.delete(yard, USER, file_id)
                input_file(yard, 2)

    batch_id = validated(yard, 8)
    threads = [threading.Thread(target=users) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        made = [saved(yard, data, tmp_path) for _ in range(2)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert [each.damaged for each in made] == [(), ()]
    back = put_back(fresh, tmp_path)
    known = blob_keys(back)
    assert len(known) == made[-1].contents
    assert all(back.blobs.exists(key) for key in known)
    assert batch(back, batch_id).state == "validated"


@ON_SQLITE
def test_the_next_backup_copies_what_is_new_and_drops_what_is_gone(yard: Yard, data: Path, tmp_path: Path) -> None:
    kept, gone = input_file(yard, 1), input_file(yard, 2)
    assert saved(yard, data, tmp_path).copied == 2
    half = tmp_path / "backup" / "blobs" / "unfinished" / "half"
    half.write_bytes(b"of a backup that was killed")
    os.utime(half, (0, 0))
    files.delete(yard, USER, gone)
    with yard.store.begin() as session:
        key = files.content(yard, USER, kept).blob_key
        for blob in session.exec(select(Blob).where(Blob.key != key)):
            blob.collected_at = yard.store.now(session)
            session.add(blob)
    input_file(yard, 3)
    made = saved(yard, data, tmp_path)
    assert (made.copied, made.contents) == (1, 2)
    copies = {path.name for path in (tmp_path / "backup" / "blobs").glob("??/??/*")}
    assert copies == blob_keys(yard) - {blob for blob in blob_keys(yard) if blob not in copies}
    assert len(copies) == 2
    assert not half.exists()


@ON_SQLITE
def test_a_content_that_is_needed_and_damaged_is_told(yard: Yard, data: Path, tmp_path: Path) -> None:
    lost, cut = (files.content(yard, USER, input_file(yard, rows)).blob_key for rows in (1, 2))
    yard.blobs.delete(lost)
    yard.blobs.put(cut, [b"half"])
    assert set(saved(yard, data, tmp_path).damaged) == {lost, cut}


@ON_SQLITE
def test_a_content_of_the_right_size_is_told_as_damaged_by_each_backup_until_it_is_mended(
    yard: Yard, data: Path, tmp_path: Path
) -> None:
    key = files.content(yard, USER, input_file(yard, 1)).blob_key
    good = yard.blobs.read(key)
    yard.blobs.put(key, [b"x" * len(good)])
    assert [saved(yard, data, tmp_path).damaged for _ in range(2)] == [(key,), (key,)]
    yard.blobs.put(key, [good])
    assert saved(yard, data, tmp_path).damaged == ()
    assert LocalBlobs(tmp_path / "backup" / "blobs").read(key) == good


@ON_SQLITE
def test_what_was_lost_or_damaged_since_an_earlier_backup_is_told_and_its_whole_copy_stays(
    yard: Yard, data: Path, tmp_path: Path
) -> None:
    lost, cut, noticed = (files.content(yard, USER, input_file(yard, rows)).blob_key for rows in (1, 2, 3))
    good = {key: yard.blobs.read(key) for key in (lost, cut, noticed)}
    assert saved(yard, data, tmp_path).damaged_here == ()
    yard.blobs.delete(lost)
    damage(yard.blobs, cut, WAYS["halved"])
    damage(yard.blobs, noticed, WAYS["flipped"])
    note_damage(yard, noticed, "its bytes are not those that were written")
    for _ in range(2):
        made = saved(yard, data, tmp_path)
        assert (made.damaged, set(made.damaged_here)) == ((), {lost, cut, noticed})
    copies = LocalBlobs(tmp_path / "backup" / "blobs")
    for key, content in good.items():
        assert copies.read(key) == content
        yard.blobs.put(key, [content])
    assert saved(yard, data, tmp_path).damaged_here == (), "though nothing has looked at it since"


@ON_SQLITE
def test_what_the_backup_lacks_and_somebody_needs_is_told_when_it_is_put_back(
    yard: Yard, fresh: Yard, data: Path, tmp_path: Path
) -> None:
    """As of one whose own copy was cut off."""
    lost, cut, changed = (files.content(yard, USER, input_file(yard, rows)).blob_key for rows in (1, 2, 4))
    input_file(yard, 3)
    assert saved(yard, data, tmp_path).damaged == ()
    copies = LocalBlobs(tmp_path / "backup" / "blobs")
    copies.delete(lost)
    copies.put(cut, [b"half"])
    damage(copies, changed, WAYS["flipped"])
    made = backups.put_back(fresh, tmp_path / "fresh", tmp_path / "backup")
    assert set(made.damaged) == {lost, cut, changed}


@ON_SQLITE
def test_keys_travel_with_it_and_nobody_else_reads_them(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    data.mkdir(exist_ok=True)
    (data / "webhooks.key").write_bytes(b"k" * 32)
    (data / "keys.json").write_text("{}")
    saved(yard, data, tmp_path)
    put_back(fresh, tmp_path)
    for folder in ("backup", "fresh"):
        for name in ("webhooks.key", "keys.json"):
            path = tmp_path / folder / name
            assert path.read_bytes() == (data / name).read_bytes()
            assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "backup" / backups_sql.file_name(yard.store)).stat().st_mode & 0o777 == 0o600


@ON_SQLITE
def test_results_are_the_same_before_and_after(yard: Yard, fresh: Yard, data: Path, tmp_path: Path) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(batch_id, grant)
    Controller(yard).works()
    before = list(results.read(yard, USER, batch_id).lines)
    saved(yard, data, tmp_path)
    back = put_back(fresh, tmp_path)
    assert list(results.read(back, USER, batch_id).lines) == before
    assert events(back, "service") == ["service.restored"]


def test_sqlite_is_copied_in_one_file_that_anything_can_open(
    sqlite_databases: Databases, data: Path, tmp_path: Path
) -> None:
    with closing(Store(sqlite_databases.copy_of(migrate))) as store:
        saved(new_yard(store, data / "blobs"), data, tmp_path)
    names = {path.name for path in (tmp_path / "backup").iterdir()}
    assert names == {"gpuyard.db", "backup.json"}
    with closing(sqlite3.connect(tmp_path / "backup" / "gpuyard.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
