"""PROTOCOL 5: handing in. A verdict a lease, nothing doubled, nothing stored that is not what its header says."""

from collections.abc import Sequence

import pytest
from pydantic import ValidationError
from sqlmodel import func, select

from app.blobs.store import BlobUnavailable
from app.db.tables import Blob, Event, Segment
from app.domain.errors import BadRequest
from app.schemas.segments import MAX_LEASES, End, HandInHeader
from app.services import handins
from app.services.context import Caller, Yard
from app.sweeps import lease_expiry
from tests.yards import (
    Controller,
    Machine,
    assert_sound,
    batch,
    events,
    grants_of,
    later,
    lease,
    machine,
    part,
    part_content,
    result_files,
    shards,
    states,
    validated,
)


def stored(yard: Yard) -> int:
    with yard.store.read() as session:
        return session.exec(select(func.count()).select_from(Segment)).one()


def test_one_call_covers_all_shards_of_a_batch(yard: Yard) -> None:
    batch_id = validated(yard, rows=12)
    one = machine(yard)
    first, second, third = grants_of(one, 3)
    answer = one.hand_in(batch_id, {first: [0, 2], second: [5], third: [8, 9, 10, 11]}, ends=[third])
    assert answer.parts == {first: "stored", second: "stored", third: "stored"}
    assert answer.ends == {third: "ended"}
    assert [job.done_rows for job in shards(yard, batch_id)] == ["0,2", "5", "8-11"]
    with yard.store.read() as session:
        segments = session.exec(select(Segment)).all()
        assert len({segment.blob_key for segment in segments}) == 1
        blob = session.exec(select(Blob).where(Blob.key == segments[0].blob_key)).one()
        assert (blob.put_at is not None, blob.unreferenced_at) == (True, None)
    assert_sound(yard)


def test_the_same_content_again_is_a_duplicate_and_other_content_a_conflict(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    assert one.hand_in(batch_id, {mine: [0, 1]}, seq=1).parts == {mine: "stored"}
    assert one.hand_in(batch_id, {mine: [0, 1]}, seq=1).parts == {mine: "duplicate"}
    assert one.hand_in(batch_id, {mine: [0, 1]}, seq=1, answer="other").parts == {mine: "conflict"}
    assert one.hand_in(batch_id, {mine: [2]}, seq=1).parts == {mine: "conflict"}
    assert stored(yard) == 1
    assert_sound(yard)


def test_a_disk_that_is_full_stores_nothing_and_takes_the_same_call_once_there_is_room(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise BlobUnavailable("no space left on device")

    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    with monkeypatch.context() as disk:
        disk.setattr("app.blobs.local.LocalBlobWriter.write", full)
        with pytest.raises(BlobUnavailable):
            one.hand_in(batch_id, {mine: [0, 1, 2, 3]}, ends=[mine], seq=1)
    assert (stored(yard), states(yard, mine)) == (0, ["held"])
    answer = one.hand_in(batch_id, {mine: [0, 1, 2, 3]}, ends=[mine], seq=1)
    assert (answer.parts, answer.ends) == ({mine: "stored"}, {mine: "ended"})
    assert_sound(yard)


def test_a_duplicate_is_known_after_the_lease_has_ended(yard: Yard) -> None:
    """FT-04, A-32."""
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    for _ in range(2):  # the first answer was lost
        answer = one.hand_in(batch_id, {mine: [0, 1, 2, 3]}, seq=1, ends=[mine], request="end-1")
        assert answer.ends == {mine: "ended"}
    assert answer.parts == {mine: "duplicate"}
    assert one.hand_in(batch_id, {}, ends=[mine], request="end-2").ends == {mine: "stale"}
    assert_sound(yard)


def test_rows_that_are_done_are_a_conflict_whoever_sends_them(yard: Yard) -> None:
    batch_id = validated(yard)
    one, two = machine(yard, "one"), machine(yard, "two")
    (old,) = grants_of(one)
    one.hand_in(batch_id, {old: [0, 1]})
    one.release(old)
    (new,) = grants_of(two)
    assert two.hand_in(batch_id, {new: [1, 2]}).parts == {new: "conflict"}
    assert two.hand_in(batch_id, {new: [2, 3]}, ends=[new]).ends == {new: "ended"}
    assert_sound(yard)


def test_rows_of_another_shard_are_a_conflict(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    (mine,) = grants_of(one)
    assert one.hand_in(batch_id, {mine: [3, 4]}).parts == {mine: "conflict"}
    assert one.hand_in(batch_id, {mine: [3]}).parts == {mine: "stored"}
    assert_sound(yard)


def test_an_end_with_rows_missing_is_incomplete_and_the_lease_goes_on(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    answer = one.hand_in(batch_id, {mine: [0, 3]}, ends=[mine])
    assert (answer.parts, answer.ends) == ({mine: "stored"}, {mine: "incomplete"})
    assert states(yard, mine) == ["held"]
    assert one.hand_in(batch_id, {mine: [1, 2]}, ends=[mine]).ends == {mine: "ended"}
    assert_sound(yard)


def test_what_a_refused_report_said_is_kept(yard: Yard) -> None:
    """A-31."""
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    one.release(mine)
    assert one.hand_in(batch_id, {mine: [0]}, ends=[mine]).parts == {mine: "stale"}
    assert one.fail(mine, "too late").leases == {mine: "stale"}
    assert events(yard, batch_id).count("lease.stale_report") == 2
    assert stored(yard) == 0


def test_ends_that_nobody_knows_are_counted_in_one_event(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    unknown = range(mine + 1, mine + MAX_LEASES)
    header = HandInHeader(
        worker_id=one.id,
        batch_id=batch_id,
        ends=[End(lease_id=lease_id, request_id="end") for lease_id in (mine, *unknown)],
    )
    answer = handins.hand_in(yard, one.caller, header, b"")
    assert set(answer.ends) == {mine, *unknown}
    assert answer.ends.pop(mine) == "incomplete"
    assert set(answer.ends.values()) == {"stale"}
    (found,) = stale_reports(yard)
    assert (found.subject, found.data["unknown"]) == (one.id, len(unknown))


@pytest.mark.parametrize("name", ["parts", "ends"])
def test_one_call_names_so_many_shards_at_most(name: str) -> None:
    part = {"lease_id": 1, "seq": 1, "rows": "0", "completed": 1, "failed": 0, "length": 1, "request_id": "end"}
    head = {"worker_id": "w", "batch_id": "b"}
    HandInHeader.model_validate({**head, name: [part] * MAX_LEASES})
    with pytest.raises(ValidationError, match="at most 1000 items"):
        HandInHeader.model_validate({**head, name: [part] * (MAX_LEASES + 1)})


def stale_reports(yard: Yard) -> Sequence[Event]:
    with yard.store.read() as session:
        return session.exec(select(Event).where(Event.type == "lease.stale_report")).all()


def test_one_stale_lease_keeps_no_other_from_being_stored(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    gone, mine = grants_of(one, 2)
    one.release(gone)
    assert one.hand_in(batch_id, {gone: [0], mine: [4]}).parts == {gone: "stale", mine: "stored"}
    assert_sound(yard)


def test_a_lease_of_another_batch_or_worker_is_stale_and_tells_nothing(yard: Yard) -> None:
    first, second = validated(yard), validated(yard)
    one, two = machine(yard, "one", slots=2), machine(yard, "two")
    (mine,), (other,) = grants_of(one), grants_of(one)
    one.hand_in(first, {mine: [0]}, seq=1)
    assert one.hand_in(first, {other: [0]}, seq=1).parts == {other: "stale"}
    assert two.hand_in(first, {mine: [0]}, seq=1).parts == {mine: "stale"}
    assert lease(yard, other).batch_id == second
    held = lease(yard, mine)
    assert two.fail(mine).leases == two.release(mine).leases == two.beat(mine).leases == {mine: "stale"}
    assert lease(yard, mine) == held
    stranger = Machine(yard, "three", caller=Caller("org_2", None, "stranger", frozenset({"worker"})), id=one.id)
    with pytest.raises(Exception, match="no worker"):
        stranger.hand_in(first, {mine: [1]})


@pytest.mark.parametrize(
    "lie", ["rows", "completed", "length", "flag", "order", "half", "twice", "double part", "double end", "ranges"]
)
def test_bytes_that_differ_from_their_header_are_refused_and_nothing_is_stored(yard: Yard, lie: str) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    content = part_content(batch_id, [0, 1])
    told = part(mine, 1, [0, 1], content)
    parts, ends = [told], []
    changes = {
        "rows": {"rows": "0-2"},
        "completed": {"completed": 1, "failed": 1},
        "length": {"length": len(content) - 1},
        "order": {"rows": "1,0"},
        "ranges": {"rows": "0-99999999999999999999"},
    }
    if lie in changes:
        parts = [told.model_copy(update=changes[lie])]
    elif lie == "flag":
        content = content.replace(b"\tc\t", b"\tf\t")
    elif lie == "half":
        content = content[:-5] + b"xxxx\n"
    elif lie == "twice":
        content = part_content(batch_id, [0]) * 2
        parts = [told.model_copy(update={"length": len(content)})]
    elif lie == "double part":
        parts, content = [told, told], content * 2
    else:
        ends = [End(lease_id=mine, request_id="a"), End(lease_id=mine, request_id="b")]
    header = HandInHeader(worker_id=one.id, batch_id=batch_id, parts=parts, ends=ends)
    with pytest.raises(BadRequest):
        handins.hand_in(yard, one.caller, header, content)
    assert stored(yard) == 0
    assert shards(yard, batch_id)[0].done_rows == ""
    assert states(yard, mine) == ["held"]


def test_a_failure_is_an_attempt_and_reported_twice_is_one(yard: Yard) -> None:
    """FT-16, B-26, A-32."""
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    for _ in range(2):
        assert one.fail(mine, request="report-1").leases == {mine: "ended"}
    (job,) = shards(yard, batch_id)
    assert (job.state, job.attempts, job.losses) == ("queued", 1, 0)
    assert_sound(yard)


def test_the_third_failure_fails_the_open_rows_with_its_reason(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one)
    one.hand_in(batch_id, {mine: [1]})
    for attempt in range(3):
        assert one.fail(mine, f"attempt {attempt}").leases == {mine: "ended"}
        found = one.claim().grants
        mine = found[0].lease_id if found else 0
    (job,) = shards(yard, batch_id)
    assert (job.state, job.completed, job.failed) == ("failed", 1, 3)
    assert batch(yard, batch_id).outcome == "completed"
    Controller(yard).works()
    ended = batch(yard, batch_id)
    assert (ended.state, ended.completed, ended.failed, ended.total) == ("completed", 1, 3, 4)
    output, errors = result_files(yard, batch_id)
    assert [line["custom_id"] for line in output] == ["row-1"]
    assert [(line["custom_id"], line["error"]["message"]) for line in errors] == [
        (f"row-{n}", "attempt 2") for n in (0, 2, 3)
    ]
    assert_sound(yard)


def test_the_next_try_prefers_another_worker(yard: Yard) -> None:
    validated(yard, rows=8)
    one = machine(yard)
    (mine,) = grants_of(one)
    one.fail(mine)
    (grant,) = one.claim().grants
    assert grant.number == 1


def test_lost_workers_end_a_shard_after_the_bound(yard: Yard) -> None:
    batch_id = validated(yard, rows=2)
    one = machine(yard)
    for losses in range(1, 6):
        one.beat()
        grants_of(one)
        later(yard, 301)
        lease_expiry.run_once(yard, 100)
        assert shards(yard, batch_id)[0].losses == losses
    assert shards(yard, batch_id)[0].state == "failed"
    Controller(yard).works()
    assert [line["error"]["code"] for line in result_files(yard, batch_id)[1]] == ["worker_lost"] * 2
    assert_sound(yard)
