"""What is read is what was written: a row whose stored answer is damaged or gone fails by name, and its batch ends."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from app.blobs.local import LocalBlobs
from app.db.tables import Event, Job
from app.domain.jobs import ControlVerb
from app.services import batches, results, row_errors
from app.services.context import Yard
from app.services.missing import CONTENT_TRIES
from app.sweeps import batch_expiry
from tests.damaged import (
    LARGE,
    MISSING_WAYS,
    SEGMENT_WAYS,
    WAYS,
    damage,
    damage_second,
    goes_on,
    input_key,
    stored_segments,
    tries,
    worked_off,
)
from tests.yards import (
    USER,
    assert_sound,
    batch,
    cancel,
    control_job,
    created,
    later,
    machine,
    result_files,
    shards,
    validated,
)

SECOND_SHARD = {f"row-{row}": "result_damaged" for row in range(4, 8)}
NOT_RUN = {"batch_cancelled", "batch_expired"}


def assert_counted(yard: Yard, batch_id: str, codes: Mapping[str | None, str], *, answer: str = "ok") -> None:
    """Assert that there is one line a row, that counts are those of the lines, and that no answer is a wrong one."""
    found = batch(yard, batch_id)
    output, error = result_files(yard, batch_id)
    failed = [line for line in error if line["error"]["code"] not in NOT_RUN]
    assert (found.completed, found.failed) == (len(output), len(failed))
    assert len(output) + len(error) == found.total
    counts = [(job.completed, job.failed) for job in shards(yard, batch_id)]
    assert tuple(map(sum, zip(*counts, strict=True))) == (found.completed, found.failed)
    assert {line["custom_id"]: line["error"]["code"] for line in error} == codes
    assert all(line["response"] is None for line in error)
    # By their ids: a failure that shows megabytes takes minutes.
    assert [line["custom_id"] for line in output if line["response"]["body"] not in (answer, "x" * LARGE)] == []
    assert sum(1 for _ in results.read(yard, USER, batch_id).lines) == found.total
    assert_sound(yard)


def damage_told(yard: Yard, batch_id: str) -> dict[str, Any]:
    [found] = told_of(yard, batch_id)
    return found


def told_of(yard: Yard, batch_id: str) -> list[dict[str, Any]]:
    with yard.store.read() as session:
        query = select(Event).where(Event.subject == batch_id, Event.type == "batch.damaged")
        return [event.data for event in session.exec(query.order_by("seq"))]


def counted(yard: Yard, kind: str) -> float:
    return yard.counters.registry.get_sample_value("gpuyard_damaged_contents_total", {"kind": kind}) or 0.0


def reason(yard: Yard, batch_id: str) -> str | None:
    return batches.retrieve(yard, USER, batch_id).gpuyard.waiting_reason


def forget_input_sums(yard: Yard, batch_id: str) -> None:
    """Make the batch one that was validated before shards had checksums."""
    with yard.store.begin() as session:
        for job in session.exec(select(Job).where(Job.batch_id == batch_id, Job.kind == "shard")):
            job.input_sum = None
            session.add(job)


@pytest.mark.parametrize("large", [False, True], ids=["at_once", "row_by_row"])
@pytest.mark.parametrize("how", SEGMENT_WAYS)
def test_rows_of_a_damaged_hand_in_fail_by_name_and_the_others_are_answered(yard: Yard, how: str, large: bool) -> None:
    batch_id, segments = worked_off(yard, large=large)
    damaged = damage_second(yard, segments, how)
    assert goes_on(yard, batch_id, times=CONTENT_TRIES if how in MISSING_WAYS else 1) == "completed"

    rows = {f"row-{row}": "result_damaged" for row in range(12) if row // 4 in damaged}
    assert_counted(yard, batch_id, rows)
    told = damage_told(yard, batch_id)
    assert told["segments"] == [segments[number].id for number in sorted(damaged)]
    assert told["rows"] == ("4-11" if how == "swap" else "4-7")
    assert told["what"] == f"{len(rows)} stored results are damaged or gone"
    assert counted(yard, "segment") == len(damaged)


def test_a_line_that_changes_after_its_hand_in_was_checked_is_not_served(yard: Yard, tmp_path: Path) -> None:
    """A large shard is read twice: as a whole, and then row by row."""

    class Rots(LocalBlobs):
        def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
            found = super().read(key, start, end)
            return WAYS["flipped"](found) if 1_000_000 < len(found) < 2 * LARGE else found

    batch_id, _ = worked_off(yard, large=True)
    rotting = replace(yard, blobs=Rots(tmp_path / "blobs"))
    assert goes_on(rotting, batch_id, times=CONTENT_TRIES - 1) == "finalizing"
    assert goes_on(rotting, batch_id, times=1) == "completed"
    assert_counted(yard, batch_id, SECOND_SHARD)


def test_without_any_hand_in_every_row_fails(yard: Yard) -> None:
    batch_id, segments = worked_off(yard)
    for segment in segments:
        yard.blobs.delete(segment.blob_key)
    assert goes_on(yard, batch_id) == "completed"
    assert_counted(yard, batch_id, {f"row-{row}": "result_damaged" for row in range(12)})
    assert batch(yard, batch_id).output_file_id is None


def test_a_missing_hand_in_is_said_looked_for_and_used_when_it_comes_back(yard: Yard) -> None:
    batch_id, segments = worked_off(yard)
    key = segments[1].blob_key
    content = yard.blobs.read(key)
    yard.blobs.delete(key)
    assert goes_on(yard, batch_id, times=CONTENT_TRIES - 1) == "finalizing"
    said = reason(yard, batch_id)
    assert said is not None
    assert f"rows 4-7 are missing: there is no blob {key}; try 4 of 5" in said
    yard.blobs.put(key, [content])
    assert goes_on(yard, batch_id, times=1) == "completed"
    assert_counted(yard, batch_id, {})
    assert reason(yard, batch_id) is None


@pytest.mark.parametrize("how", SEGMENT_WAYS)
def test_a_running_batch_streams_no_answer_that_was_not_handed_in(yard: Yard, how: str) -> None:
    batch_id, segments = worked_off(yard, rows=16)
    damaged = damage_second(yard, segments, how)
    lines = [json.loads(line) for line in results.read(yard, USER, batch_id).lines]

    assert [line["custom_id"] for line in lines] == [f"row-{row}" for row in range(12)]
    codes = {row: line["error"]["code"] for row, line in enumerate(lines) if line["error"]}
    assert codes == {row: "result_damaged" for row in range(12) if row // 4 in damaged}
    assert all(line["response"]["body"] == "ok" for line in lines if line["response"])


def test_a_content_that_is_missing_for_days_is_looked_for_to_the_end(yard: Yard) -> None:
    batch_id = created(yard)
    with yard.store.begin() as session:
        job = session.exec(select(Job).where(Job.batch_id == batch_id)).one()
        job.attempts = 5_000  # a store that is away counts as no try
        session.add(job)
    yard.blobs.delete(input_key(yard, batch_id))
    assert goes_on(yard, batch_id) == "failed"


@pytest.mark.parametrize("what", ["ids", "newlines", "gone"])
def test_no_id_comes_from_an_input_that_is_not_what_was_validated(yard: Yard, what: str) -> None:
    """Of a damaged answer, and of rows that never ran."""
    batch_id, segments = worked_off(yard, done=8)
    damage(yard.blobs, segments[1].blob_key, WAYS["flipped"])
    if what == "gone":
        yard.blobs.delete(input_key(yard, batch_id))
    else:
        before, after = (b"row-", b"bar-") if what == "ids" else (b"\n", b"!")
        damage(yard.blobs, input_key(yard, batch_id), lambda content: content.replace(before, after))
    streamed = [json.loads(line) for line in results.read(yard, USER, batch_id).lines]
    assert [line["custom_id"] for line in streamed] == [f"row-{row}" for row in range(4)] + [None] * 4
    cancel(yard, batch_id)
    machine(yard)  # a restart ends the lease of the last shard
    assert goes_on(yard, batch_id) == "cancelled"

    _, error = result_files(yard, batch_id)
    assert [line["custom_id"] for line in error] == [None] * 8
    assert [line["error"]["code"] for line in error] == ["result_damaged"] * 4 + ["input_damaged"] * 4
    found = batch(yard, batch_id)
    assert (found.total, found.completed, found.failed) == (12, 4, 8)
    results_told, input_told = told_of(yard, batch_id)
    assert (results_told["rows"], input_told["rows"], input_told["file"]) == ("4-7", "8-11", found.input_file_id)
    assert (counted(yard, "segment"), counted(yard, "input")) == (1, 1)
    assert_sound(yard)


def test_an_input_validated_without_a_checksum_gives_ids_while_its_lines_can_be_counted(yard: Yard) -> None:
    batch_id, segments = worked_off(yard)
    forget_input_sums(yard, batch_id)
    damage(yard.blobs, segments[1].blob_key, WAYS["flipped"])
    damage(yard.blobs, input_key(yard, batch_id), lambda content: content.replace(b"\n", b" ", 6))
    assert goes_on(yard, batch_id, times=1) == "completed"
    assert_counted(yard, batch_id, {None: "result_damaged"})


def test_an_input_that_is_gone_before_validation_fails_its_batch_by_name(yard: Yard) -> None:
    batch_id = created(yard)
    yard.blobs.delete(input_key(yard, batch_id))
    assert goes_on(yard, batch_id, times=CONTENT_TRIES - 1) == "validating"
    assert "the input is missing" in (reason(yard, batch_id) or "")
    assert goes_on(yard, batch_id, times=1) == "failed"
    assert [error["code"] for error in batch(yard, batch_id).errors] == ["input_damaged"]
    assert (batch(yard, batch_id).error_count, reason(yard, batch_id)) == (1, None)
    assert damage_told(yard, batch_id) == {"what": "it is gone", "file": batch(yard, batch_id).input_file_id}
    assert counted(yard, "input") == 1
    assert_sound(yard)


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_a_batch_that_is_told_to_end_does_so_without_its_input(yard: Yard, end: str) -> None:
    ready = validated(yard, window="1h")
    unread = created(yard, window="1h")
    for batch_id in (unread, ready):
        yard.blobs.delete(input_key(yard, batch_id))
    tries(yard)
    if end == "cancelled":
        cancel(yard, unread)
        cancel(yard, ready)
    else:
        later(yard, 3601)
        batch_expiry.run_once(yard, 100)
    assert (goes_on(yard, unread), goes_on(yard, ready)) == (end, end)
    assert batch(yard, unread).error_file_id is None
    assert [line["error"]["code"] for line in result_files(yard, ready)[1]] == ["input_damaged"] * 4
    assert_sound(yard)


def test_an_input_that_is_gone_while_its_batch_runs_costs_the_rows_that_were_not_handed_in(yard: Yard) -> None:
    batch_id, _ = worked_off(yard, rows=8, done=4)
    yard.blobs.delete(input_key(yard, batch_id))
    one = machine(yard)  # a restart: it reads the input anew
    for _ in range(3):
        later(yard, 1)
        for grant in one.claim().grants:
            one.fail(grant.lease_id, "the input was answered 404")
    assert goes_on(yard, batch_id) == "completed"
    assert_counted(yard, batch_id, {None: "input_damaged"})
    assert batch(yard, batch_id).completed == 4


def test_what_is_counted_of_failures_leaves_damaged_hand_ins_out(yard: Yard) -> None:
    batch_id = validated(yard, rows=12)
    one = machine(yard)
    for number, grant in enumerate(one.claim(want=12).grants[:2]):
        one.hand_in(batch_id, {grant.lease_id: range(number * 4, number * 4 + 4)}, answer=f"why {number}", failed=True)
    damage(yard.blobs, stored_segments(yard, batch_id)[1].blob_key, WAYS["flipped"])
    found = row_errors.top(yard, USER, batch_id)
    assert [(each.count, each.message) for each in found.data] == [(4, "why 0")]


def test_a_batch_waits_and_says_so_when_its_lines_are_not_its_rows(yard: Yard) -> None:
    """Of a shard whose row is gone from the database nobody can write a line: it is not called completed."""
    batch_id, _ = worked_off(yard)
    with yard.store.begin() as session:
        found = batch(yard, batch_id)
        found.total += 1
        session.add(found)
    assert goes_on(yard, batch_id, times=2) == "finalizing"
    assert "internal error" in (reason(yard, batch_id) or "")
    job = control_job(yard, batch_id, ControlVerb.FINALIZE)
    assert job is not None
    assert job.content_tries == 0
