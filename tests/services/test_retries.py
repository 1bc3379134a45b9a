"""Retries where the order of two transactions, the end of the batch, or a damaged content decides."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from sqlmodel import col, select

from app.blobs.local import LocalBlobs
from app.blobs.store import Stored
from app.db.tables import ApiToken, Batch, Blob, File
from app.domain.errors import Conflict, LimitReached, NotFound
from app.schemas.batches import NewRetry
from app.services import batches, results, retries
from app.services.context import Yard
from app.services.files import content
from app.sweeps import batch_expiry, retention
from tests.damaged import WAYS, damage, flip, goes_on, input_key, stored_segments
from tests.services.test_results import half_done
from tests.yards import (
    USER,
    Controller,
    batch,
    cancel,
    created,
    input_row,
    later,
    machine,
    validated,
)

FAILED = NewRetry()


def retry(yard: Yard, batch_id: str, **wanted: object) -> str:
    return retries.retry(yard, USER, batch_id, NewRetry.model_validate(wanted)).id


def input_of(yard: Yard, batch_id: str) -> bytes:
    return yard.blobs.read(input_key(yard, batch_id))


def work(yard: Yard, batch_id: str, *, answer: str = "again") -> None:
    """Have all rows of a batch answered."""
    Controller(yard).works()
    one = machine(yard, f"on-{batch_id}")
    for grant in one.claim(want=1000).grants:
        rows = range(grant.first_row, grant.first_row + grant.rows)
        one.hand_in(batch_id, {grant.lease_id: rows}, ends=[grant.lease_id], answer=answer)
    Controller(yard).works()
    assert batch(yard, batch_id).state == "completed"


def half_failed(yard: Yard) -> str:
    """A batch of eight rows, the first four of which failed."""
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    for grant in one.claim(want=8).grants:
        rows = range(grant.first_row, grant.first_row + grant.rows)
        one.hand_in(batch_id, {grant.lease_id: rows}, ends=[grant.lease_id], failed=grant.first_row == 0)
    Controller(yard).works()
    return batch_id


def merged(yard: Yard, batch_id: str) -> list[tuple[str | None, object]]:
    lines = map(json.loads, results.read(yard, USER, batch_id, with_retries=True).lines)
    return [(line["custom_id"], line["error"] and line["error"]["code"]) for line in lines]


def test_the_same_call_at_the_same_moment_makes_one_batch_and_leaves_one_file(yard: Yard, tmp_path: Path) -> None:
    """Each has found no batch of that call before the other one makes it."""
    both = Barrier(2, timeout=30)

    class Meeting(LocalBlobs):
        def put(self, key: str, chunks: Iterable[bytes]) -> Stored:
            both.wait()
            return super().put(key, chunks)

    batch_id = half_failed(yard)
    meeting = replace(yard, blobs=Meeting(tmp_path / "blobs"))
    with yard.store.begin() as session:
        now = yard.store.now(session)
        session.add(ApiToken(id="tok_1", org_id="org_1", name="n", prefix="gk", sha256="0", created_at=now))
    token = replace(USER, token_id="tok_1")  # noqa: S106 - the id of a key
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(
            lambda _: retries.retry(meeting, token, batch_id, FAILED, idempotency_key="k").id, range(2)
        )
    assert first == second
    with yard.store.read() as session:
        assert len(session.exec(select(Batch).where(Batch.retry_of == batch_id)).all()) == 1
        begun = session.exec(select(Blob).where(col(Blob.put_at).is_(None))).all()
    assert [blob.unreferenced_at is None for blob in begun] == [False]
    assert batches.retrieve(yard, USER, batch_id).gpuyard.retried_by == [first]


def test_rows_that_a_cancel_left_unrun_run_again(yard: Yard) -> None:
    batch_id = half_done(yard)
    with pytest.raises(Conflict, match="batch_cancelled"):
        retry(yard, batch_id, rows="expired")
    again = retry(yard, batch_id)
    assert input_of(yard, again) == b"".join(map(input_row, range(4)))
    work(yard, again)
    assert merged(yard, batch_id) == [(f"row-{row}", None) for row in range(8)]


@pytest.mark.parametrize("rows", ["expired", "failed"])
def test_rows_that_the_end_of_the_window_left_unrun_run_again(yard: Yard, rows: str) -> None:
    batch_id = validated(yard, rows=8, window="1h")
    one = machine(yard)
    grants = one.claim(want=8).grants
    one.hand_in(batch_id, {grants[0].lease_id: range(4)}, ends=[grants[0].lease_id], failed=True)
    later(yard, 3601)
    batch_expiry.run_once(yard, 100)
    one.release(grants[1].lease_id)
    Controller(yard).works()
    assert batch(yard, batch_id).state == "expired"
    taken = range(4 if rows == "expired" else 0, 8)
    assert input_of(yard, retry(yard, batch_id, rows=rows)) == b"".join(map(input_row, taken))


def test_a_batch_that_ended_before_its_input_was_read_runs_as_a_whole(yard: Yard) -> None:
    batch_id = created(yard, rows=8)
    cancel(yard, batch_id)
    Controller(yard).works()
    assert (batch(yard, batch_id).state, batch(yard, batch_id).total) == ("cancelled", 0)
    with pytest.raises(Conflict):
        retry(yard, batch_id, codes=["request_timeout"])
    assert merged(yard, batch_id) == []
    again = retry(yard, batch_id)
    assert input_of(yard, again) == input_of(yard, batch_id)
    assert merged(yard, batch_id) == []
    work(yard, again)
    assert merged(yard, batch_id) == [(f"row-{row}", None) for row in range(8)]


def test_rows_whose_answer_is_damaged_run_again(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    for grant in one.claim(want=8).grants:
        one.finish(batch_id, grant)
    damage(yard.blobs, stored_segments(yard, batch_id)[0].blob_key, WAYS["flipped"])
    assert goes_on(yard, batch_id, times=1) == "completed"
    assert merged(yard, batch_id)[:5] == [*((f"row-{row}", "result_damaged") for row in range(4)), ("row-4", None)]
    again = retry(yard, batch_id, codes=["result_damaged"])
    work(yard, again)
    assert merged(yard, batch_id) == [(f"row-{row}", None) for row in range(8)]


def test_rows_whose_input_is_damaged_run_again_once_it_is_what_was_written(yard: Yard) -> None:
    """Their lines have no id as long as nobody can tell it."""
    batch_id = validated(yard, rows=8)
    key = input_key(yard, batch_id)
    first = len(b"".join(map(input_row, range(4))))
    before = damage(yard.blobs, key, lambda content: flip(content, first - 10))
    one = machine(yard)
    for grant in one.claim(want=8).grants:
        if grant.first_row == 0:
            one.fail(grant.lease_id, error="input_damaged")
        else:
            one.finish(batch_id, grant)
    cancel(yard, batch_id)
    assert goes_on(yard, batch_id) == "cancelled"
    unknown = [(None, "input_damaged")] * 4
    answered = [(f"row-{row}", None) for row in range(4, 8)]
    assert merged(yard, batch_id) == [*unknown, *answered]
    with pytest.raises(Conflict, match=r"is damaged on the server: its bytes .* Upload the file again"):
        retry(yard, batch_id)
    yard.blobs.put(key, [before])
    again = retry(yard, batch_id)
    assert input_of(yard, again) == b"".join(map(input_row, range(4)))
    work(yard, again)
    lines = [json.loads(line) for line in results.read(yard, USER, batch_id, with_retries=True).lines]
    assert [line["custom_id"] for line in lines] == [f"row-{row}" for row in range(8)]
    assert [line["error"] for line in lines] == [None] * 8


def test_an_error_file_that_is_damaged_or_gone_chooses_no_rows(yard: Yard) -> None:
    batch_id = half_failed(yard)
    error_file_id = batch(yard, batch_id).error_file_id
    assert error_file_id is not None
    key = content(yard, USER, error_file_id).blob_key
    before = damage(yard.blobs, key, WAYS["flipped"])
    with pytest.raises(Conflict, match=f"The file '{error_file_id}' is damaged"):
        retry(yard, batch_id)
    yard.blobs.delete(key)
    with pytest.raises(Conflict, match=f"The file '{error_file_id}' is damaged on the server: it is gone"):
        retry(yard, batch_id)
    assert batch(yard, retry(yard, batch_id, rows="all")).retry_of == batch_id
    yard.blobs.put(key, [before])
    assert batch(yard, retry(yard, batch_id)).retry_of == batch_id


def test_the_file_counts_for_its_org_and_a_full_org_keeps_nothing_of_a_refused_one(yard: Yard) -> None:
    batch_id = half_failed(yard)
    full = replace(yard, limits=replace(yard.limits, org=replace(yard.limits.org, batches=0)))
    with pytest.raises(LimitReached):
        retries.retry(full, USER, batch_id, FAILED)
    with yard.store.read() as session:
        lost = [blob for blob in session.exec(select(Blob)).all() if blob.unreferenced_at is not None]
    assert len(lost) == 1
    full = replace(yard, limits=replace(yard.limits, org=replace(yard.limits.org, files=2)))
    with pytest.raises(LimitReached, match="org_files"):
        retries.retry(full, USER, batch_id, FAILED)


def test_blank_lines_a_byte_order_mark_and_carriage_returns_move_no_row(yard: Yard) -> None:
    lines = [input_row(row) for row in range(8)]
    odd = (
        b"\xef\xbb\xbf" + lines[0] + b"\n  \n" + lines[1][:-1] + b"\r\n" + b"".join(lines[2:7]) + b"\n" + lines[7][:-1]
    )
    batch_id = validated(yard, content=odd)
    one = machine(yard)
    for grant in one.claim(want=8).grants:
        rows = range(grant.first_row, grant.first_row + grant.rows)
        one.hand_in(batch_id, {grant.lease_id: rows}, ends=[grant.lease_id], failed=True)
    Controller(yard).works()
    assert input_of(yard, retry(yard, batch_id)) == b"".join(lines)


def test_retries_whose_files_are_gone_are_told_and_too_many_are_refused(yard: Yard) -> None:
    batch_id = half_failed(yard)
    again = retry(yard, batch_id)
    work(yard, again)
    with yard.store.begin() as session:
        file = session.exec(select(File).where(File.id == batch(yard, again).output_file_id)).one()
        file.hidden_at = yard.store.now(session)
        session.add(file)
    with pytest.raises(NotFound, match=f"The output file .* of batch '{again}' was deleted at"):
        results.read(yard, USER, batch_id, with_retries=True)
    assert len(list(results.read(yard, USER, batch_id).lines)) == 8
    for _ in range(results.MAX_RETRIES):
        retry(yard, batch_id)
    with pytest.raises(Conflict, match="more than 20 retries"):
        results.read(yard, USER, batch_id, with_retries=True)


def test_a_batch_that_is_forgotten_leaves_its_retry(yard: Yard) -> None:
    batch_id = half_failed(yard)
    later(yard, 1000)
    again = retry(yard, batch_id)
    work(yard, again)
    soon = replace(yard.limits, segment_retention_seconds=1, job_retention_seconds=1, batch_retention_seconds=2000)
    later(yard, 1500)
    for _ in range(4):
        retention.run_once(replace(yard, limits=soon), 1000)
    with pytest.raises(NotFound, match="No such Batch"):
        batches.retrieve(yard, USER, batch_id)
    assert batches.retrieve(yard, USER, again).gpuyard.retry_of == batch_id
    assert merged(yard, again) == [(f"row-{row}", None) for row in range(4)]
