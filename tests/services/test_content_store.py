"""A store that is away is waited for, and a store of another installation is not used."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import select

from app.blobs.local import MARKER, LocalBlobs
from app.blobs.store import BlobMissing, BlobUnavailable, ForeignStore
from app.db.tables import ContentStore
from app.domain.jobs import ControlVerb
from app.services import backups, batches, content_store, readiness, results
from app.services.context import Yard
from app.sweeps import retention
from tests.damaged import goes_on, input_key, tries, worked_off
from tests.yards import USER, assert_sound, batch, cancel, control_job, created, input_file, later, machine, validated

DAY = 86_400


def restarted(yard: Yard, folder: Path) -> Yard:
    """Another process of the same database, with contents in `folder`."""
    return replace(yard, blobs=LocalBlobs(folder))


def known_id(yard: Yard) -> str:
    with yard.store.read() as session:
        return session.exec(select(ContentStore)).one().id


def take_away(folder: Path, *, leaves_empty_folder: bool) -> Path:
    """Unmount the store; gives where it went."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    if leaves_empty_folder:
        folder.mkdir()
    return aside


def bring_back(folder: Path, aside: Path) -> None:
    if folder.exists():
        folder.rmdir()
    aside.rename(folder)


def test_a_new_store_is_marked_once_whoever_starts_first(yard: Yard, tmp_path: Path) -> None:
    for _ in range(2):
        content_store.settle(restarted(yard, tmp_path / "blobs"))
    assert (tmp_path / "blobs" / MARKER).read_text() == f"{known_id(yard)}\n"
    assert (tmp_path / "blobs" / MARKER).stat().st_mode & 0o777 == 0o600


def test_a_store_that_was_there_before_markers_is_adopted_by_its_contents(yard: Yard, tmp_path: Path) -> None:
    input_file(yard, 4)
    content_store.settle(yard)
    assert yard.blobs.identity() == known_id(yard)


def test_a_start_does_not_hang_with_its_store(yard: Yard, tmp_path: Path) -> None:
    """A pipe that nobody writes into hangs as a file of a dead mount does."""
    content_store.settle(yard)
    marker = tmp_path / "blobs" / MARKER
    aside = marker.rename(tmp_path / "aside")
    os.mkfifo(marker)
    try:
        content_store.settle(restarted(yard, tmp_path / "blobs"))
    finally:
        hanging = marker.rename(tmp_path / "hanging")
        aside.rename(marker)
        hanging.write_bytes(b"")


def test_a_start_that_was_cut_off_is_ended_by_the_next(yard: Yard, tmp_path: Path) -> None:
    content_store.settle(yard)
    with yard.store.begin() as session:
        session.exec(select(ContentStore)).one().marked_at = None
    content_store.settle(yard)
    (tmp_path / "blobs" / MARKER).unlink()
    with pytest.raises(BlobUnavailable, match="not mounted"):
        yard.blobs.read("ab" * 16)


def test_a_store_without_any_known_content_is_not_adopted(yard: Yard, tmp_path: Path) -> None:
    input_file(yard, 4)
    with pytest.raises(ForeignStore, match="none of the contents that this database knows: mount"):
        content_store.settle(restarted(yard, tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_contents_that_a_new_database_does_not_know_are_not_adopted(yard: Yard, tmp_path: Path) -> None:
    LocalBlobs(tmp_path / "theirs").put("ab" * 16, [b"a content"])
    with pytest.raises(ForeignStore, match="another installation"):
        content_store.settle(restarted(yard, tmp_path / "theirs"))


def test_the_store_of_another_database_is_refused_at_the_start_and_later(yard: Yard, tmp_path: Path) -> None:
    content_store.settle(yard)
    key = input_key(yard, created(yard))
    theirs = LocalBlobs(tmp_path / "theirs")
    theirs.mark("cd" * 16)
    with pytest.raises(ForeignStore, match="another installation's"):
        content_store.settle(restarted(yard, tmp_path / "theirs"))

    take_away(tmp_path / "blobs", leaves_empty_folder=False)
    (tmp_path / "theirs").rename(tmp_path / "blobs")
    for use in (lambda: yard.blobs.read(key), lambda: yard.blobs.put(key, [b"x"]), lambda: yard.blobs.delete(key)):
        with pytest.raises(ForeignStore):
            use()
    assert "another installation's" in readiness.look(yard, for_anybody=True).parts["blobs"]


@pytest.mark.parametrize("leaves_empty_folder", [False, True], ids=["no_folder", "empty_folder"])
def test_while_the_store_is_away_batches_wait_and_nothing_counts_as_a_try(
    yard: Yard, tmp_path: Path, leaves_empty_folder: bool
) -> None:
    content_store.settle(yard)
    done, _ = worked_off(yard)
    unread = created(yard)
    aside = take_away(tmp_path / "blobs", leaves_empty_folder=leaves_empty_folder)

    assert (goes_on(yard, done, times=8), batch(yard, unread).state) == ("finalizing", "validating")
    for batch_id, verb in ((done, ControlVerb.FINALIZE), (unread, ControlVerb.VALIDATE)):
        job = control_job(yard, batch_id, verb)
        assert job is not None
        assert (job.content_tries, job.attempts) == (0, 8)
        said = batches.retrieve(yard, USER, batch_id).gpuyard.waiting_reason
        assert said is not None
        assert said.startswith("the store of contents is away: the store has no store.id")
    content_store.settle(restarted(yard, tmp_path / "blobs"))  # a start waits for it, too
    assert "not mounted" in readiness.look(yard, for_anybody=True).parts["blobs"]

    bring_back(tmp_path / "blobs", aside)
    assert (goes_on(yard, done), batch(yard, unread).state) == ("completed", "validated")
    assert (batch(yard, done).completed, batch(yard, done).failed) == (12, 0)
    assert_sound(yard)


def test_a_hand_in_is_not_written_beside_a_store_that_is_away(yard: Yard, tmp_path: Path) -> None:
    content_store.settle(yard)
    batch_id = validated(yard)
    one = machine(yard)
    [grant] = one.claim().grants
    aside = take_away(tmp_path / "blobs", leaves_empty_folder=True)
    with pytest.raises(BlobUnavailable, match="not mounted"):
        one.finish(batch_id, grant)
    assert list((tmp_path / "blobs").iterdir()) == []
    bring_back(tmp_path / "blobs", aside)
    one.finish(batch_id, grant)
    assert goes_on(yard, batch_id, times=1) == "completed"


def test_a_batch_that_was_not_validated_can_be_cancelled_while_the_store_is_away(yard: Yard, tmp_path: Path) -> None:
    content_store.settle(yard)
    batch_id = created(yard)
    take_away(tmp_path / "blobs", leaves_empty_folder=True)
    tries(yard)
    cancel(yard, batch_id)
    assert goes_on(yard, batch_id) == "cancelled"


def test_retention_takes_nothing_for_deleted_while_the_store_is_away(yard: Yard, tmp_path: Path) -> None:
    content_store.settle(yard)
    batch_id, segments = worked_off(yard)
    assert goes_on(yard, batch_id, times=1) == "completed"
    aside = take_away(tmp_path / "blobs", leaves_empty_folder=True)
    later(yard, 3 * DAY, listening=False)
    counts = retention.run_once(yard, 100)
    assert (counts["segments"], counts["contents"]) == (0, 0)
    assert batch(yard, batch_id).kept == "rows"
    with pytest.raises(BlobUnavailable):
        results.read(yard, USER, batch_id)

    bring_back(tmp_path / "blobs", aside)
    assert retention.run_once(yard, 100)["segments"] == len(segments)
    later(yard, 2 * DAY, listening=False)
    assert retention.run_once(yard, 100)["contents"] >= len(segments)
    assert not any(yard.blobs.exists(segment.blob_key) for segment in segments)


def test_a_store_that_cannot_be_written_is_waited_for(yard: Yard, tmp_path: Path) -> None:
    content_store.settle(yard)
    batch_id, _ = worked_off(yard)
    unfinished = tmp_path / "blobs" / "unfinished"
    unfinished.rmdir()
    unfinished.touch()  # no folder: whoever writes is refused by the system, and root as well
    assert goes_on(yard, batch_id, times=8) == "finalizing"
    said = batches.retrieve(yard, USER, batch_id).gpuyard.waiting_reason
    assert said is not None
    assert "is away" in said
    unfinished.unlink()
    assert goes_on(yard, batch_id, times=1) == "completed"
    assert batch(yard, batch_id).failed == 0


def test_a_database_that_was_put_back_looks_for_the_marker_again(yard: Yard, tmp_path: Path) -> None:
    input_file(yard, 4)
    content_store.settle(yard)
    (tmp_path / "blobs" / MARKER).unlink()  # by who copied the contents alone
    backups.settle(yard.store)
    again = restarted(yard, tmp_path / "blobs")
    content_store.settle(again)
    assert again.blobs.identity() == known_id(yard)
    with pytest.raises(BlobMissing):
        again.blobs.read("ab" * 16)
