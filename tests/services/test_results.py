"""The one file of a batch that has ended: a line a row, in input order, out of its two files alone (B-11, R-22).

And what there is of it while the batch runs.
"""

import json
import tracemalloc
from functools import partial

import pytest
from sqlmodel import select

from app.db.tables import File
from app.domain.errors import Conflict, NotFound
from app.services import results
from app.services.context import Yard
from app.sweeps import retention
from tests.interleaving import doing, held
from tests.yards import USER, Controller, batch, cancel, later, machine, validated

DAY = 86_400
MIB = 1024 * 1024


def half_done(yard: Yard) -> str:
    """A batch of eight rows that was cancelled when the last four of them were done."""
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    grants = one.claim(want=8).grants
    one.finish(batch_id, grants[1])
    cancel(yard, batch_id)
    one.release(grants[0].lease_id)
    assert Controller(yard).works() == 1
    assert batch(yard, batch_id).state == "cancelled"
    return batch_id


def ids(yard: Yard, batch_id: str) -> list[str]:
    return [json.loads(line)["custom_id"] for line in results.read(yard, USER, batch_id).lines]


def hide(yard: Yard, file_id: str | None) -> None:
    with yard.store.begin() as session:
        file = session.exec(select(File).where(File.id == file_id)).one()
        file.hidden_at = yard.store.now(session)
        session.add(file)


def test_finished_and_unfinished_rows_come_in_input_order(yard: Yard) -> None:
    assert ids(yard, half_done(yard)) == [f"row-{n}" for n in range(8)]


def test_lines_are_sent_many_at_a_time_and_none_is_lost(yard: Yard) -> None:
    batch_id = half_done(yard)
    lines = list(results.read(yard, USER, batch_id).lines)
    assert list(results.read(yard, USER, batch_id).pieces()) == [b"".join(lines)]
    pieces = list(results.read(yard, USER, batch_id).pieces(max(map(len, lines)) + 1))
    assert b"".join(pieces) == b"".join(lines)
    assert 1 < len(pieces) < len(lines)


def test_the_input_may_be_long_gone(yard: Yard) -> None:
    batch_id = half_done(yard)
    hide(yard, batch(yard, batch_id).input_file_id)
    later(yard, DAY + 60, listening=False)
    assert retention.run_once(yard, 100)["contents"] >= 1
    assert ids(yard, batch_id) == [f"row-{n}" for n in range(8)]


def test_without_one_of_its_files_there_is_no_whole(yard: Yard) -> None:
    batch_id = half_done(yard)
    hide(yard, batch(yard, batch_id).error_file_id)
    with pytest.raises(NotFound, match=r"^The error file .* was deleted at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.$"):
        results.read(yard, USER, batch_id)


def test_a_content_that_is_gone_is_told_before_the_first_line(yard: Yard) -> None:
    """What is found out later can only cut the answer off, which reads as "come back later"."""
    batch_id = half_done(yard)
    with yard.store.read() as session:
        key = session.exec(select(File.blob_key).where(File.id == batch(yard, batch_id).output_file_id)).one()
    yard.blobs.delete(key)
    with pytest.raises(Conflict, match="it is gone"):
        results.read(yard, USER, batch_id)


def test_a_reader_that_waits_in_a_large_hand_in_holds_a_piece_of_it(yard: Yard) -> None:
    batch_id = validated(yard, rows=4)
    one = machine(yard)
    (mine,) = one.claim().grants
    one.hand_in(batch_id, {mine.lease_id: [0, 1]}, answer="x" * 20 * MIB)
    tracemalloc.start()
    pieces = results.read(yard, USER, batch_id).pieces()
    first = next(pieces)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * MIB
    lines = b"".join([first, *pieces]).splitlines()
    assert [json.loads(line)["custom_id"] for line in lines] == ["row-0", "row-1"]


def test_who_reads_a_running_batch_skips_no_row_that_is_committed_late(yard: Yard) -> None:
    """The rows of a hand-in that is under way have lower numbers than those of one that was quicker (PROTOCOL 9)."""
    batch_id = validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    (mine,), (yours,) = one.claim().grants, two.claim().grants
    hand_in = partial(one.hand_in, batch_id, {mine.lease_id: [0]})
    with held(yard.store, hand_in, at_commit_after="INSERT INTO segment") as late:
        quick = doing(partial(two.hand_in, batch_id, {yours.lease_id: [4]}))
        if yard.store.dialect == "postgresql":
            assert quick.result().parts == {yours.lease_id: "stored"}
        first = results.read(yard, USER, batch_id)
        lines = list(first.lines)
    assert late.result().parts == {mine.lease_id: "stored"}
    assert quick.result().parts == {yours.lease_id: "stored"}
    lines += results.read(yard, USER, batch_id, after=first.next_after).lines
    assert sorted(json.loads(line)["custom_id"] for line in lines) == ["row-0", "row-4"]
