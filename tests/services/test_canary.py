"""A batch whose first rows all fail alike stops early, and only then (decision 22, PROTOCOL 5)."""

import json
from contextlib import suppress

import pytest

from app.schemas.batches import BatchObject
from app.schemas.segments import FirstRows, HandInAnswer
from app.services import batches, presence, results
from app.services.context import Yard
from app.sweeps import batch_expiry, lease_expiry
from tests.interleaving import Crash, crashing, doing, held
from tests.yards import (
    USER,
    Controller,
    Machine,
    assert_sound,
    batch,
    cancel,
    created,
    events,
    input_row,
    later,
    machine,
    result_files,
    states,
    validated,
)

KIND = "400 invalid_request_error"
LEN = 2
"""Rows that run first."""
STOP_GRACE_SECONDS = 30


def word(kind: str | None = KIND, row: int = 0) -> FirstRows:
    return FirstRows(kind=kind, rows=LEN, row=row, message="told to fail")


def fails(one: Machine, batch_id: str, kind: str | None = KIND) -> HandInAnswer:
    """Hand in that the first rows of this worker's first shard failed."""
    grant = next(iter(one.grants.values()))
    rows = [grant.first_row, grant.first_row + 1]
    return one.hand_in(batch_id, {grant.lease_id: rows}, failed=True, first_rows=word(kind, grant.first_row))


def says_it_again(one: Machine, batch_id: str, kind: str = KIND) -> HandInAnswer:
    return one.hand_in(batch_id, {}, first_rows=word(kind))


def ended(yard: Yard, batch_id: str) -> BatchObject:
    """Whoever was told to stop lets go, and the files are written."""
    later(yard, STOP_GRACE_SECONDS + 1)
    lease_expiry.run_once(yard, 100)
    Controller(yard).works()
    assert_sound(yard)
    return batches.retrieve(yard, USER, batch_id)


@pytest.fixture
def bad(yard: Yard) -> str:
    """A batch of twelve rows, of which two run first."""
    return validated(yard, rows=12, canary_rows=LEN)


class TestOneWorkerWhoseFirstRowsFailAlike:
    def test_ends_the_batch_as_failed_with_every_row_in_its_error_file(self, yard: Yard, bad: str) -> None:
        one = machine(yard)
        (grant,) = one.claim().grants
        assert fails(one, bad).stop == [grant.lease_id]
        assert states(yard, grant.lease_id) == ["stopping"]
        assert (batch(yard, bad).outcome, batches.retrieve(yard, USER, bad).status) == ("failed", "in_progress")
        one.release(grant.lease_id)

        found = ended(yard, bad)
        assert found.status == "failed"
        assert found.failed_at is not None
        counts = found.request_counts
        assert (counts.total, counts.completed, counts.failed) == (12, 0, 2)
        assert found.errors is not None
        (error,) = found.errors.data
        assert (error.code, error.line) == ("first_rows_failed", 1)
        assert f"The first 2 rows that ran all failed alike, with {KIND}: told to fail" in error.message
        assert "10 of 12 rows were not run" in error.message
        assert "canary_rows: 0" in error.message
        output, errors = result_files(yard, bad)
        assert (output, found.output_file_id) == ([], None)
        assert [line["custom_id"] for line in errors] == [f"row-{number}" for number in range(12)]
        assert [line["error"]["code"] for line in errors] == ["request_timeout"] * 2 + ["batch_stopped"] * 10
        assert [json.loads(line) for line in results.read(yard, USER, bad).lines] == errors
        kinds = events(yard, bad)
        assert kinds.index("batch.first_rows_failed") < kinds.index("batch.stopping") < kinds.index("batch.failed")

    def test_names_the_line_of_its_first_row_though_there_are_blank_ones(self, yard: Yard) -> None:
        content = b"\n\n" + b"".join(b"\n" + input_row(number) for number in range(12))
        batch_id = validated(yard, content=content, canary_rows=LEN)
        one = machine(yard)
        one.claim()
        fails(one, batch_id)
        found = ended(yard, batch_id).errors
        assert found is not None
        assert found.data[0].line == 4

    def test_is_heard_though_its_only_lease_ended_with_those_rows(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=12, canary_rows=4)
        one = machine(yard)
        (grant,) = one.claim().grants
        one.hand_in(batch_id, {grant.lease_id: range(4)}, ends=[grant.lease_id], failed=True, first_rows=word())
        assert ended(yard, batch_id).status == "failed"

    def test_that_says_it_again_after_a_lost_answer_hears_the_same(self, yard: Yard, bad: str) -> None:
        one = machine(yard)
        one.claim()
        fails(one, bad)
        says_it_again(one, bad)
        assert events(yard, bad).count("batch.first_rows_failed") == 1

    def test_whose_stop_breaks_off_halfway_is_stopped_by_the_sweep(self, yard: Yard, bad: str) -> None:
        one = machine(yard)
        (grant,) = one.claim().grants
        one.hand_in(bad, {grant.lease_id: [0, 1]}, failed=True)
        for statement in range(1, 60):
            with suppress(Crash), crashing(yard.store, at_statement=statement):
                says_it_again(one, bad)
            if batch(yard, bad).outcome is not None:
                break
        assert states(yard, grant.lease_id) == ["held"]
        batch_expiry.run_once(yard, 100)
        assert states(yard, grant.lease_id) == ["stopping"]


class TestABatchRunsOn:
    def test_when_a_row_of_it_was_completed_by_another_worker(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        one.claim()
        (good,) = two.claim().grants
        two.hand_in(bad, {good.lease_id: [good.first_row]})
        assert fails(one, bad).goes_on
        assert batch(yard, bad).outcome is None

    def test_while_another_worker_has_said_nothing(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        (mine,), (_,) = one.claim().grants, two.claim().grants
        answer = fails(one, bad)
        assert (answer.goes_on, answer.stop, batch(yard, bad).outcome) == (False, [], None)
        assert sorted(fails(two, bad).stop) == [next(iter(two.grants))]
        assert states(yard, mine.lease_id) == ["stopping"]

    def test_when_another_worker_met_something_else(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        one.claim()
        two.claim()
        fails(one, bad)
        assert fails(two, bad, "404 not_found").goes_on
        assert says_it_again(one, bad).goes_on
        assert batch(yard, bad).outcome is None

    def test_when_the_failures_of_a_worker_are_not_alike(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        one.claim()
        two.claim()
        fails(one, bad)
        assert fails(two, bad, None).goes_on
        assert says_it_again(one, bad).goes_on

    def test_and_is_claimed_without_a_canary_once_a_row_is_completed(self, yard: Yard, bad: str) -> None:
        one = machine(yard)
        first = one.claim()
        assert first.batch is not None
        assert first.batch.canary_rows == LEN
        one.finish(bad, first.grants[0])
        second = one.claim()
        assert second.batch is not None
        assert second.batch.canary_rows == 0

    def test_for_whom_it_was_switched_off(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=12, canary_rows=0)
        one = machine(yard)
        claimed = one.claim()
        assert claimed.batch is not None
        assert claimed.batch.canary_rows == 0
        assert fails(one, batch_id).goes_on

    def test_when_it_has_no_more_rows_than_run_first(self, yard: Yard) -> None:
        validated(yard, rows=4, canary_rows=4)
        claimed = machine(yard).claim()
        assert claimed.batch is not None
        assert claimed.batch.canary_rows == 0

    def test_for_the_word_of_a_worker_that_holds_nothing_of_it(self, yard: Yard, bad: str) -> None:
        stranger = machine(yard)
        stranger.hand_in(bad, {}, first_rows=word())
        stranger.hand_in(bad, {}, first_rows=word(None))
        assert (batch(yard, bad).outcome, batch(yard, bad).canary_over) == (None, False)


def test_a_worker_that_says_nothing_is_waited_for_no_longer_than_a_dead_one(yard: Yard, bad: str) -> None:
    one, two = machine(yard, "one"), machine(yard, "two")
    (mine,), (silent,) = one.claim().grants, two.claim().grants
    fails(one, bad)
    later(yard, yard.timing.toleration_seconds - 5)
    one.beat(mine.lease_id)
    two.beat(silent.lease_id)
    assert says_it_again(one, bad).stop == []
    later(yard, 6)
    assert says_it_again(one, bad).stop == [mine.lease_id]


def test_without_a_word_of_its_own_a_batch_has_the_services_number(yard: Yard) -> None:
    assert batches.retrieve(yard, USER, created(yard)).gpuyard.canary_rows == yard.canary_rows
    assert batches.retrieve(yard, USER, created(yard, canary_rows=3)).gpuyard.canary_rows == 3


class TestAtTheSameTime:
    def test_a_completed_row_that_is_just_being_stored_is_waited_for(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        (mine,), (good,) = one.claim().grants, two.claim().grants
        fails(two, bad)
        store = lambda: two.hand_in(bad, {good.lease_id: [good.first_row + 2]})  # noqa: E731 - said twice
        with held(yard.store, store, at_commit_after="INSERT INTO segment"):
            word_of_one = doing(lambda: fails(one, bad))
            word_of_one.assert_waits(yard.store)
        assert word_of_one.result().goes_on
        assert states(yard, mine.lease_id, good.lease_id) == ["held", "held"]
        assert_sound(yard)

    def test_a_completed_row_that_comes_after_the_decision_is_kept(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        (good,) = two.claim().grants
        one.claim()
        fails(two, bad)
        with held(yard.store, lambda: fails(one, bad), at_commit_after="UPDATE batch SET outcome"):
            late = doing(lambda: two.hand_in(bad, {good.lease_id: [good.first_row + 2]}))
            late.assert_waits(yard.store)
        assert late.result().parts == {good.lease_id: "stored"}
        found = ended(yard, bad)
        assert (found.status, found.request_counts.completed) == ("failed", 1)
        output, errors = result_files(yard, bad)
        assert (len(output), len(errors)) == (1, 11)

    def test_a_cancel_that_comes_first_stands(self, yard: Yard, bad: str) -> None:
        one = machine(yard)
        one.claim()
        with held(yard.store, lambda: cancel(yard, bad), at_commit_after="UPDATE batch"):
            late = doing(lambda: fails(one, bad))
            late.assert_waits(yard.store)
        late.result()
        assert ended(yard, bad).status == "cancelled"
        assert "batch.first_rows_failed" not in events(yard, bad)

    def test_the_end_of_the_window_that_comes_first_stands(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=12, canary_rows=LEN, window="10s")
        one = machine(yard)
        one.claim()
        later(yard, 11)
        presence.tick(yard)
        with held(yard.store, lambda: batch_expiry.run_once(yard, 100), at_commit_after="UPDATE batch"):
            late = doing(lambda: fails(one, batch_id))
            late.assert_waits(yard.store)
        late.result()
        assert ended(yard, batch_id).status == "expired"

    def test_a_claim_that_comes_between_has_a_say(self, yard: Yard, bad: str) -> None:
        one, two = machine(yard, "one"), machine(yard, "two")
        (mine,) = one.claim().grants
        with held(yard.store, lambda: fails(one, bad), before="UPDATE batch SET outcome") as word_of_one:
            between = doing(lambda: two.claim().grants)
            if yard.store.dialect == "sqlite":
                between.assert_waits(yard.store)
            else:
                between.result()
        answer = word_of_one.result()
        assert_sound(yard)
        if yard.store.dialect == "sqlite":
            assert answer.stop == [mine.lease_id]
        else:
            assert (answer.stop, batch(yard, bad).outcome) == ([], None)
