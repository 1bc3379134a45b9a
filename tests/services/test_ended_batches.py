"""Decision 60: of a batch that has ended segments go first, then jobs and leases, then the batch; its files stay."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import func, select

from app.db import webhooks as webhooks_sql
from app.db.tables import Batch, Blob, Job, Lease, Segment
from app.domain.errors import Conflict, NotFound
from app.domain.jobs import ControlVerb
from app.domain.retention import Kept
from app.schemas.segments import PartVerdict
from app.services import batches, ended_batches, files, results
from app.services.context import Yard
from app.sweeps import retention
from tests.damaged import WAYS
from tests.damaged import damage as flipped
from tests.interleaving import doing, held
from tests.yards import (
    USER,
    Controller,
    Machine,
    assert_sound,
    batch,
    created,
    events,
    later,
    machine,
    result_files,
    validated,
)

DAY = 86_400
ON_SQLITE = pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
"""What no statement decides that another test does not run on both."""


def done(yard: Yard, rows: int = 8, *, parts: int = 1) -> tuple[str, Machine]:
    """A batch that has completed, each shard of it handed in `parts` times."""
    batch_id = validated(yard, rows)
    one = machine(yard)
    for grant in one.claim(want=rows).grants:
        for row in range(grant.first_row, grant.first_row + parts - 1):
            one.hand_in(batch_id, {grant.lease_id: [row]})
        rest = range(grant.first_row + parts - 1, grant.first_row + grant.rows)
        one.hand_in(batch_id, {grant.lease_id: rest}, ends=[grant.lease_id])
    Controller(yard).works()
    assert batch(yard, batch_id).state == "completed"
    return batch_id, one


def days(yard: Yard, count: float) -> None:
    """Let days and a second pass, in which nobody listened: 3,000 ticks a day would be the slowest part of this."""
    later(yard, count * DAY + 1, listening=False)


def sweep(yard: Yard, limit: int = 100) -> Mapping[str, int]:
    """A pass that found something to do, without what it found nothing of."""
    return {name: count for name, count in retention.run_once(yard, limit).items() if count}


def count(yard: Yard, table: Any, *where: Any) -> int:
    with yard.store.read() as session:
        return session.exec(select(func.count()).select_from(table).where(*where)).one()


def rows_of(yard: Yard, batch_id: str) -> int:
    return len(list(results.read(yard, USER, batch_id).lines))


def damage(yard: Yard, batch_id: str) -> None:
    """Cut the output file, as a disk that breaks might."""
    output = batch(yard, batch_id).output_file_id
    key = files.content(yard, USER, output or "").blob_key
    yard.blobs.put(key, [b"half"])


def test_segments_go_a_day_after_the_end_and_the_results_stay(yard: Yard) -> None:
    batch_id, _ = done(yard, parts=2)
    before = rows_of(yard, batch_id)
    assert "segments" not in sweep(yard)
    days(yard, 1)
    assert sweep(yard)["segments"] == 4
    assert count(yard, Segment) == 0
    assert batch(yard, batch_id).kept == Kept.JOBS
    assert_sound(yard)
    assert rows_of(yard, batch_id) == before == 8
    assert len(result_files(yard, batch_id)[0]) == 8
    assert sweep(yard) == {}


@ON_SQLITE
def test_what_segments_were_in_is_deleted_a_day_after_them(yard: Yard) -> None:
    batch_id, _ = done(yard)
    keep = {files.content(yard, USER, file or "").blob_key for file in _files(yard, batch_id)}
    days(yard, 1)
    sweep(yard)
    with yard.store.read() as session:
        of_segments = set(session.exec(select(Blob.key))) - keep
    assert len(of_segments) == 2
    assert all(yard.blobs.exists(key) for key in of_segments)
    days(yard, 1)
    assert sweep(yard)["contents"] == 2
    assert not any(yard.blobs.exists(key) for key in of_segments)
    assert all(yard.blobs.exists(key) for key in keep)
    assert count(yard, Blob) == len(keep)


def _files(yard: Yard, batch_id: str) -> list[str | None]:
    found = batch(yard, batch_id)
    return [found.input_file_id, found.output_file_id]


@ON_SQLITE
def test_a_batch_that_runs_or_has_just_ended_loses_nothing(yard: Yard) -> None:
    batch_id = validated(yard, 8, window="30d")
    one = machine(yard)
    grants = one.claim(want=8).grants
    one.finish(batch_id, grants[0])
    for _ in range(2):
        days(yard, 5)
        one.beat(*one.grants)
        assert not {"segments", "jobs", "batches"} & sweep(yard).keys()
    one.finish(batch_id, grants[1])
    Controller(yard).works()
    days(yard, 0.5)
    assert "segments" not in sweep(yard)
    assert rows_of(yard, batch_id) == 8


@ON_SQLITE
def test_a_reader_in_mid_download_gets_every_row(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    for row in range(3):
        one.hand_in(batch_id, {grant.lease_id: [row]})
    running = results.read(yard, USER, batch_id).lines
    next(running)
    one.hand_in(batch_id, {grant.lease_id: [3]}, ends=[grant.lease_id])
    Controller(yard).works()
    days(yard, 1)
    assert sweep(yard)["segments"] == 4
    assert len(list(running)) == 2
    whole = results.read(yard, USER, batch_id).lines
    next(whole)
    files.delete(yard, USER, batch(yard, batch_id).output_file_id or "")
    days(yard, 2)
    assert sweep(yard)["contents"] >= 1
    assert len(list(whole)) == 3


def test_jobs_and_leases_go_after_a_week_and_the_batch_after_a_year(yard: Yard) -> None:
    batch_id, _ = done(yard)
    days(yard, 7)
    sweep(yard)
    assert sweep(yard) == {}
    assert (count(yard, Job), count(yard, Lease)) == (0, 0)
    shown = batches.retrieve(yard, USER, batch_id)
    assert (shown.status, shown.request_counts.completed, shown.request_counts.total) == ("completed", 8, 8)
    assert batch(yard, batch_id).kept == Kept.BATCH
    days(yard, 365)
    assert sweep(yard)["batches"] == 1
    assert count(yard, Batch) == 0
    assert events(yard, batch_id)[-1] == "batch.forgotten"
    with pytest.raises(NotFound):
        batches.retrieve(yard, USER, batch_id)


def test_result_files_outlive_their_batch(yard: Yard) -> None:
    batch_id, _ = done(yard)
    output = batch(yard, batch_id).output_file_id or ""
    days(yard, 400)
    while sweep(yard):
        pass
    assert count(yard, Batch) == 0
    assert yard.blobs.read(files.content(yard, USER, output).blob_key).count(b"\n") == 8
    files.delete(yard, USER, output)
    days(yard, 2)
    while sweep(yard):
        pass
    assert count(yard, Blob) == 0, "rows of files and contents that are gone stay for ever"


@ON_SQLITE
def test_each_step_is_small_and_they_go_on_until_all_is_done(yard: Yard) -> None:
    batch_id, _ = done(yard, rows=16, parts=3)
    days(yard, 7)
    assert ended_batches.forget_segments(yard, 5) == 5
    assert batch(yard, batch_id).kept == Kept.ROWS
    assert sweep(yard, limit=3)["segments"] == 7
    assert sweep(yard, limit=3)["jobs"] == 6
    assert count(yard, Job) == 0


def test_of_two_sweeps_at_once_one_waits_and_no_content_is_forgotten(yard: Yard) -> None:
    """Two that each delete one of a content's last two segments would each leave it to the other."""
    batch_id = validated(yard, 12)
    one = machine(yard)
    grants = one.claim(want=12).grants
    one.hand_in(batch_id, {grant.lease_id: range(grant.first_row, grant.first_row + 4) for grant in grants})
    one.hand_in(batch_id, {}, ends=[grant.lease_id for grant in grants])
    Controller(yard).works()
    days(yard, 1)
    assert (
        ended_batches.forget_segments(yard, 1) == 1
    )  # the batch's own row is written with the first and the last step
    with held(
        yard.store, lambda: ended_batches.forget_segments(yard, 1), at_commit_after="DELETE FROM segment"
    ) as slow:
        quick = doing(lambda: ended_batches.forget_segments(yard, 1))
        quick.assert_waits(yard.store)
    assert (slow.result(), quick.result()) == (1, 1)
    assert count(yard, Blob, Blob.unreferenced_at.is_not(None)) == 1  # type: ignore[union-attr]


@pytest.mark.long
def test_sweeps_at_once_end_as_one_would(yard: Yard) -> None:
    for _ in range(3):
        done(yard)
    days(yard, 8)
    passes = [doing(lambda: retention.run_once(yard, 2)) for _ in range(4)]
    assert sum(each.result()["segments"] for each in passes) == 6
    while sweep(yard):
        pass
    assert count(yard, Segment) == count(yard, Job) == count(yard, Lease) == 0


@ON_SQLITE
def test_a_damaged_result_file_keeps_the_segments(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    batch_id, _ = done(yard)
    damage(yard, batch_id)
    days(yard, 30)
    assert not {"segments", "jobs"} & sweep(yard).keys()
    assert batch(yard, batch_id).kept == Kept.DAMAGED
    assert events(yard, batch_id)[-1] == "batch.damaged"
    assert batch_id in caplog.text
    assert count(yard, Segment) == 2
    sweep(yard)
    assert events(yard, batch_id).count("batch.damaged") == 1
    days(yard, 366)
    while sweep(yard):
        pass
    assert count(yard, Batch) == 0


@ON_SQLITE
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_flipped_bit_that_nobody_downloaded_keeps_the_segments(yard: Yard, is_gone: bool) -> None:
    batch_id, _ = done(yard)
    key = files.content(yard, USER, batch(yard, batch_id).output_file_id or "").blob_key
    yard.blobs.delete(key) if is_gone else flipped(yard.blobs, key, WAYS["flipped"])
    days(yard, 1)
    sweep(yard)
    sweep(yard)
    assert (batch(yard, batch_id).kept, count(yard, Segment)) == (Kept.DAMAGED, 2)
    assert events(yard, batch_id).count("batch.damaged") == 1
    assert yard.counters.registry.get_sample_value("gpuyard_damaged_contents_total", {"kind": "result"}) == 1


@ON_SQLITE
def test_a_result_file_that_a_download_found_damaged_keeps_the_segments(yard: Yard) -> None:
    batch_id, _ = done(yard, parts=2)
    output = files.content(yard, USER, batch(yard, batch_id).output_file_id or "")
    flipped(yard.blobs, output.blob_key, WAYS["flipped"])
    with pytest.raises(Conflict, match="is damaged"):
        files.pieces(yard, output, 0, 10)
    days(yard, 1)
    sweep(yard)
    assert batch(yard, batch_id).kept == Kept.DAMAGED
    assert count(yard, Segment) == 4


def test_a_file_that_a_user_deleted_is_not_damaged(yard: Yard) -> None:
    batch_id, _ = done(yard)
    output = batch(yard, batch_id).output_file_id or ""
    content = files.content(yard, USER, output).blob_key
    files.delete(yard, USER, output)
    days(yard, 2)
    yard.blobs.delete(content)  # by a sweep that was cut off before it could say so
    sweep(yard)
    assert batch(yard, batch_id).kept == Kept.JOBS
    assert count(yard, Segment) == 0


@ON_SQLITE
def test_why_rows_failed_is_still_told_when_what_said_so_is_gone(yard: Yard) -> None:
    batch_id = validated(yard, 8)
    one = machine(yard)
    first, second = one.claim(want=8).grants
    one.finish(batch_id, first)
    one.hand_in(batch_id, {second.lease_id: [4]})
    lease_id = second.lease_id
    for _ in range(3):
        one.fail(lease_id, "no room on the GPU")
        lease_id = next(iter(grant.lease_id for grant in one.claim().grants), 0)
    Controller(yard).works()
    said = batches.retrieve(yard, USER, batch_id).gpuyard.top_errors
    assert [(error.count, error.message) for error in said] == [(3, "no room on the GPU")]
    days(yard, 8)
    while sweep(yard):
        pass
    assert count(yard, Job) == 0
    assert batches.retrieve(yard, USER, batch_id).gpuyard.top_errors == said


@ON_SQLITE
def test_a_hand_in_that_is_sent_again_after_a_week_is_late_and_no_more(yard: Yard) -> None:
    batch_id, one = done(yard, rows=4)
    (lease_id,) = one.grants
    days(yard, 8)
    sweep(yard)
    answer = one.hand_in(batch_id, {lease_id: range(4)}, seq=1)
    assert answer.parts == {lease_id: PartVerdict.STALE}
    assert rows_of(yard, batch_id) == 4


@ON_SQLITE
def test_a_batch_whose_validation_failed_goes_like_any_other(yard: Yard) -> None:
    batch_id = created(yard, content=b"no json\n")
    Controller(yard).works()
    days(yard, 366)
    while sweep(yard):
        pass
    assert count(yard, Batch) == count(yard, Job) == 0
    assert events(yard, batch_id)[-1] == "batch.forgotten"


@ON_SQLITE
def test_an_end_that_is_still_to_be_told_keeps_the_batch(yard: Yard) -> None:
    batch_id, _ = done(yard)
    with yard.store.begin() as session:
        now = yard.store.now(session)
        session.add(
            Job(kind="control", verb=ControlVerb.DELIVER, batch_id=batch_id, endpoint_id="whe_1", created_at=now)
        )
    days(yard, 366)
    while sweep(yard):
        pass
    assert count(yard, Job) == count(yard, Batch) == 1
    with yard.store.begin() as session:
        job = session.exec(select(Job)).one()
        job.state, job.ended_at = "done", yard.store.now(session)
        session.add(job)
    sweep(yard)
    assert count(yard, Job) == count(yard, Batch) == 0


def told(yard: Yard, batch_id: str, *, number: int = 0) -> None:
    """A round of telling an endpoint of a batch's end, which has ended now."""
    with yard.store.begin() as session:
        at = yard.store.now(session)
        session.add(
            Job(
                kind="control",
                verb=ControlVerb.DELIVER,
                batch_id=batch_id,
                endpoint_id="whe_1",
                number=number,
                state="done",
                created_at=at,
                ended_at=at,
            )
        )


def test_what_webhooks_were_told_goes_after_a_month(yard: Yard) -> None:
    patient = replace(yard, limits=replace(yard.limits, job_retention_seconds=100 * DAY))
    batch_id, _ = done(patient)
    told(yard, batch_id)
    days(yard, 29)
    assert "told" not in sweep(patient)
    days(yard, 2)
    assert sweep(patient)["told"] == 1
    assert count(yard, Job, Job.endpoint_id.is_not(None)) == 0  # type: ignore[union-attr]
    assert count(yard, Job) > 0


def test_a_round_that_gave_later_ones_their_id_stays_as_long_as_they_do(yard: Yard) -> None:
    """Else a receiver would be told again under an id that it does not know."""
    patient = replace(yard, limits=replace(yard.limits, job_retention_seconds=100 * DAY))
    batch_id, _ = done(patient)
    told(yard, batch_id, number=3)
    days(yard, 20)
    told(yard, batch_id, number=4)
    days(yard, 20)
    assert "told" not in sweep(patient)
    with yard.store.read() as session:
        assert webhooks_sql.number(session, "whe_1", batch_id) == 3
    days(yard, 11)
    assert sweep(patient)["told"] == 2
