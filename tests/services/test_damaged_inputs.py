"""An input that is not what was uploaded: no row of it gets the answer to another prompt."""

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import pytest
from sqlmodel import select

from app.blobs.local import LocalBlobs
from app.checksums import checksum
from app.db.store import Store
from app.db.tables import Blob, Event, File
from app.domain.errors import Conflict
from app.domain.rows import RowErrorCode
from app.schemas.claims import FailureReport
from app.services import control, files, leases
from app.services.context import Yard
from app.services.first_rows import line_of_first
from tests.damaged import WAYS, damage, flip, goes_on, swap
from tests.yards import (
    USER,
    Controller,
    Machine,
    assert_sound,
    batch,
    created,
    input_row,
    later,
    machine,
    new_yard,
    result_files,
    shards,
    validated,
)


def input_of(yard: Yard, batch_id: str) -> Blob:
    with yard.store.read() as session:
        file_id = batch(yard, batch_id).input_file_id
        return session.exec(select(Blob).join(File).where(File.id == file_id)).one()


def told(yard: Yard, subject: str) -> list[dict[str, object]]:
    """What events of damage say of a batch, or of a file."""
    with yard.store.read() as session:
        query = select(Event).where(Event.subject == subject, Event.type.in_(["batch.damaged", "file.damaged"]))
        return [event.data for event in session.exec(query.order_by("seq"))]


def counted(yard: Yard, kind: str) -> float:
    return yard.counters.registry.get_sample_value("gpuyard_damaged_contents_total", {"kind": kind}) or 0.0


def reports_damage(yard: Yard, one: Machine, lease_id: int) -> None:
    report = FailureReport(
        worker_id=one.id, lease_id=lease_id, request_id=uuid4().hex, code=RowErrorCode.INPUT_DAMAGED, error="it differs"
    )
    leases.fail(yard, USER, report, boot_id=one.boot_id)


# --- before validation


def assert_refused(yard: Yard, batch_id: str) -> None:
    found = batch(yard, batch_id)
    assert (found.state, found.total, found.output_file_id, found.error_file_id) == ("failed", 0, None, None)
    (error,) = found.errors
    assert error["code"] == "input_damaged"
    assert f"The file '{found.input_file_id}' is damaged" in error["message"]
    assert "Upload the file again and create the batch again." in error["message"]
    assert input_of(yard, batch_id).damaged_at is not None
    assert [data["file"] for data in told(yard, batch_id)] == [found.input_file_id]
    assert counted(yard, "input") == 1
    assert_sound(yard)


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_damaged_before_its_validation_fails_its_batch(yard: Yard, way: str) -> None:
    batch_id = created(yard, 9)
    damage(yard.blobs, input_of(yard, batch_id).key, WAYS[way])
    Controller(yard).works()
    assert_refused(yard, batch_id)


def test_a_small_one_is_refused_at_once_the_same_way(yard: Yard) -> None:
    one, batch_id = Controller(yard).hello(), created(yard, 9)
    damage(yard.blobs, input_of(yard, batch_id).key, WAYS["flipped"])
    work = control.due(yard)
    assert work is not None
    assert control.validate_at_once(yard, one.id, work, "request")
    assert_refused(yard, batch_id)


def test_two_that_were_swapped_fail_both_batches(yard: Yard) -> None:
    ids = [created(yard, rows) for rows in (8, 9)]
    swap(yard.blobs, *(input_of(yard, batch_id).key for batch_id in ids))
    Controller(yard).works()
    assert [batch(yard, batch_id).errors[0]["code"] for batch_id in ids] == ["input_damaged"] * 2


class _Breaking(LocalBlobs):
    """A disk that changes a bit of a content after its first read."""

    is_read = False

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Open, as ever."""
        if self.is_read:
            damage(LocalBlobs(self.root), key, WAYS["flipped"])
        self.is_read = True
        return super().open(key, start, end)


def test_one_that_is_damaged_between_two_reads_of_its_validation_fails_its_batch(store: Store, tmp_path: Path) -> None:
    """Ids that seem to repeat are looked for by a second read."""
    yard = new_yard(store, tmp_path / "blobs")
    batch_id = created(yard, content=input_row(1) * 2)
    Controller(replace(yard, blobs=_Breaking(tmp_path / "blobs"))).works()
    assert_refused(yard, batch_id)


def test_one_that_is_in_order_is_read_once(store: Store, tmp_path: Path) -> None:
    """Its shards' sums are those of the bytes that were validated."""
    yard = new_yard(store, tmp_path / "blobs")
    batch_id = created(yard, rows=9)
    Controller(replace(yard, blobs=_Breaking(tmp_path / "blobs"))).works()
    assert batch(yard, batch_id).state == "validated"


# --- after validation


def test_each_grant_carries_the_checksum_of_its_bytes(yard: Yard) -> None:
    batch_id = validated(yard, rows=9)
    content = yard.blobs.read(input_of(yard, batch_id).key)
    one = machine(yard)
    grants = one.claim(want=9).grants
    assert [grant.input_sum for grant in grants] == [checksum(content[grant.start : grant.end]) for grant in grants]
    assert len(grants) == 3


def test_the_rows_of_a_damaged_range_fail_by_name_and_at_once_and_the_others_complete(yard: Yard) -> None:
    batch_id = validated(yard, rows=12)
    key, one = input_of(yard, batch_id).key, machine(yard)
    first, second, third = one.claim(want=12).grants
    damage(yard.blobs, key, lambda content: flip(content, second.start + 9))
    reports_damage(yard, one, second.lease_id)
    job = shards(yard, batch_id)[1]
    assert (job.state, job.attempts, job.failed, job.error_code) == ("failed", 1, 4, "input_damaged")
    for grant in (first, third):
        one.finish(batch_id, grant)
    Controller(yard).works()
    found = batch(yard, batch_id)
    assert (found.state, found.completed, found.failed) == ("completed", 8, 4)
    output, errors = result_files(yard, batch_id)
    assert len(output) == 8
    assert {line["error"]["code"] for line in errors} == {"input_damaged"}
    message = errors[0]["error"]["message"]
    assert f"its bytes {second.start} to {second.end - 1} are not those that were written" in message
    assert [(data["file"], data["rows"]) for data in told(yard, batch_id)] == [(found.input_file_id, "4-7")]
    assert counted(yard, "input") == 1
    assert input_of(yard, batch_id).damaged_at is not None
    assert_sound(yard)


def test_damage_that_only_a_worker_sees_costs_a_try_as_any_failure_does(yard: Yard) -> None:
    batch_id, one = validated(yard, rows=4), machine(yard)
    (grant,) = one.claim().grants
    reports_damage(yard, one, grant.lease_id)
    (job,) = shards(yard, batch_id)
    assert (job.state, job.attempts) == ("queued", 1)
    assert (told(yard, batch_id), input_of(yard, batch_id).damaged_at) == ([], None)


def test_an_input_that_is_gone_for_half_a_minute_costs_no_row(yard: Yard) -> None:
    batch_id, one = validated(yard, rows=4), machine(yard)
    key = input_of(yard, batch_id).key
    content = yard.blobs.read(key)
    yard.blobs.delete(key)
    for pause in (10, 20):
        (grant,) = one.claim().grants
        reports_damage(yard, one, grant.lease_id)
        assert one.claim().grants == []
        later(yard, pause - 3)
        one.beat()
        assert one.claim().grants == []
        later(yard, 3)
        one.beat()
    yard.blobs.put(key, [content])
    one.finish(batch_id, one.claim().grants[0])
    Controller(yard).works()
    assert (batch(yard, batch_id).completed, told(yard, batch_id)) == (4, [])


def test_a_shard_that_fails_for_another_reason_does_not_wait(yard: Yard) -> None:
    validated(yard, rows=4)
    one = machine(yard)
    one.fail(one.claim().grants[0].lease_id)
    assert len(one.claim().grants) == 1


def test_an_input_that_stays_away_is_recorded_when_its_batch_ends(yard: Yard) -> None:
    batch_id, one = validated(yard, rows=8), machine(yard)
    first, second = one.claim(want=8).grants
    one.finish(batch_id, first)
    yard.blobs.delete(input_of(yard, batch_id).key)
    lease_id = second.lease_id
    for _ in range(3):
        reports_damage(yard, one, lease_id)
        later(yard, 21)
        one.beat()
        lease_id = next((grant.lease_id for grant in one.claim().grants), 0)
    assert goes_on(yard, batch_id) == "completed"
    [data] = told(yard, batch_id)
    assert data == {
        "what": "the input of 4 rows that were not answered is damaged or gone",
        "file": batch(yard, batch_id).input_file_id,
        "rows": "4-7",
    }
    assert counted(yard, "input") == 1


def test_a_refused_batch_is_not_read_once_more_for_checksums(store: Store, tmp_path: Path) -> None:
    class Counting(LocalBlobs):
        opened = 0

        def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
            """Open, as ever."""
            self.opened += 1
            return super().open(key, start, end)

    yard = new_yard(store, tmp_path / "blobs")
    machine(yard)
    batch_id = created(yard, models=["another"])
    blobs = Counting(tmp_path / "blobs")
    Controller(replace(yard, blobs=blobs)).works()
    assert [error["code"] for error in batch(yard, batch_id).errors] == ["model_not_found"] * 4
    assert blobs.opened == 2, "once for its lines, once for those with that model"


def test_a_report_of_a_lease_that_has_ended_marks_nothing(yard: Yard) -> None:
    batch_id, one = validated(yard, rows=4), machine(yard)
    (grant,) = one.claim().grants
    damage(yard.blobs, input_of(yard, batch_id).key, WAYS["zeros"])
    one.release(grant.lease_id)
    reports_damage(yard, one, grant.lease_id)
    assert (told(yard, batch_id), input_of(yard, batch_id).damaged_at, counted(yard, "input")) == ([], None, 0)


def test_a_stopped_batch_ends_although_its_input_tells_no_line(yard: Yard) -> None:
    batch_id = validated(yard, rows=4)
    damage(yard.blobs, input_of(yard, batch_id).key, WAYS["halved"])
    found = batch(yard, batch_id)
    found.outcome, found.errors = "failed", [{"line": 1}]
    assert line_of_first(yard, found) is None
    yard.blobs.delete(input_of(yard, batch_id).key)
    assert line_of_first(yard, found) is None


def test_a_file_that_no_batch_needs_is_told_of_by_itself(yard: Yard) -> None:
    batch_id = validated(yard, rows=4)
    one = machine(yard)
    one.finish(batch_id, one.claim().grants[0])
    Controller(yard).works()
    file_id = batch(yard, batch_id).input_file_id
    damage(yard.blobs, input_of(yard, batch_id).key, WAYS["flipped"])
    wanted = files.content(yard, USER, file_id)
    with pytest.raises(Conflict, match="is damaged on the server"):
        files.pieces(yard, wanted, 0, 10)
    assert (told(yard, batch_id), len(told(yard, file_id))) == ([], 1)
