"""PROTOCOL 8: contents go when nothing refers to them, and never while something does or soon will."""

from dataclasses import replace

import pytest
from sqlmodel import select

from app.blobs.store import Stored
from app.db import retention as retention_sql
from app.db.tables import Blob, File
from app.domain.errors import TryLater
from app.services import blobs, files
from app.services.context import Yard
from app.services.files import Upload
from app.sweeps import retention
from tests.yards import USER, Controller, batch, created, later, machine, result_files

DAY = 86_400
UPLOAD = Upload(purpose="batch", filename="x")


def collect(yard: Yard) -> int:
    return retention.run_once(yard, 100)["contents"]


def keys(yard: Yard) -> set[str]:
    with yard.store.read() as session:
        return set(session.exec(select(Blob.key)))


def key_of(yard: Yard, file_id: str) -> str:
    with yard.store.read() as session:
        return session.exec(select(File.blob_key).where(File.id == file_id)).one()


def test_a_write_that_never_ended_is_cleared_away_after_a_day(yard: Yard) -> None:
    key, _ = blobs.write(yard, USER.org_id, [b"half"])
    assert collect(yard) == 0
    later(yard, DAY + 1, listening=False)
    assert collect(yard) == 1
    assert key not in keys(yard)
    assert not yard.blobs.exists(key)


def test_a_writer_that_comes_back_too_late_is_refused(yard: Yard) -> None:
    key, stored = blobs.write(yard, USER.org_id, [b"late"])
    with yard.store.begin() as session:
        assert retention_sql.mark_orphan(session, key, yard.store.now(session))
    with pytest.raises(TryLater):
        files.create(yard, USER, key, stored, UPLOAD)


def test_a_writer_that_was_quicker_keeps_its_content(yard: Yard) -> None:
    key, stored = blobs.write(yard, USER.org_id, [b"just in time"])
    files.create(yard, USER, key, stored, UPLOAD)
    with yard.store.begin() as session:
        assert not retention_sql.mark_orphan(session, key, yard.store.now(session))
        retention_sql.delete_orphan(session, key)
    assert key in keys(yard)
    assert isinstance(stored, Stored)


def test_equal_contents_are_two_and_the_end_of_one_leaves_the_other(yard: Yard) -> None:
    """Batch data is never shared: whoever guesses a content finds nobody's, and none waits for another's end."""
    written = [blobs.write(yard, USER.org_id, [b"the same"]) for _ in range(2)]
    first, second = (files.create(yard, USER, key, stored, UPLOAD) for key, stored in written)
    assert key_of(yard, first.id) != key_of(yard, second.id)
    files.delete(yard, USER, first.id)
    later(yard, 2 * DAY, listening=False)
    assert collect(yard) == 1
    assert yard.blobs.read(key_of(yard, second.id), 0, 8) == b"the same"


def test_a_deleted_input_stays_while_its_batch_reads_it(yard: Yard) -> None:
    batch_id = created(yard, window="14d")
    input_id = batch(yard, batch_id).input_file_id
    key = key_of(yard, input_id)
    files.delete(yard, USER, input_id)
    later(yard, 2 * DAY, listening=False)
    collect(yard)
    assert yard.blobs.exists(key)
    Controller(yard).works()
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(batch_id, grant)
    Controller(yard).works()
    assert len(result_files(yard, batch_id)[0]) == 4
    collect(yard)
    assert not yard.blobs.exists(key)


def test_refused_hand_ins_leave_nothing_behind(yard: Yard) -> None:
    batch_id = created(yard)
    Controller(yard).works()
    one = machine(yard)
    (grant,) = one.claim().grants
    one.release(grant.lease_id)
    before = keys(yard)
    one.hand_in(batch_id, {grant.lease_id: [0]})
    (stale,) = keys(yard) - before
    later(yard, DAY + 1, listening=False)
    collect(yard)
    assert stale not in keys(yard)
    assert not yard.blobs.exists(stale)


def test_old_events_are_forgotten_and_young_ones_are_not(yard: Yard) -> None:
    brief = replace(yard, limits=replace(yard.limits, event_retention_seconds=100))
    created(brief)
    assert retention.run_once(brief, 100)["events"] == 0
    later(yard, 101, listening=False)
    machine(yard)
    assert retention.run_once(brief, 100)["events"] >= 1
    assert retention.run_once(brief, 100)["events"] == 0
