"""A shard that loses its workers: from the third loss it runs alone and row by row, and costs one row (R-04)."""

import pytest

from app.db.tables import Pool
from app.domain.errors import BadRequest, Conflict
from app.services.context import Yard
from tests.losses import has_work, lost, no_of, numbers, only
from tests.yards import (
    Controller,
    assert_sound,
    batch,
    cancel,
    events,
    expire,
    later,
    lease,
    machine,
    result_files,
    shards,
    states,
    validated,
)


class TestFromTheThirdLoss:
    def test_a_shard_is_run_row_by_row(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard), 2)
        assert shards(yard, batch_id)[0].cautious_at is None
        grant = only(one)
        assert not grant.row_by_row
        one = one.dies()
        assert shards(yard, batch_id)[0].cautious_at is not None
        assert events(yard, batch_id).count("job.cautious") == 1
        assert only(one).row_by_row
        assert_sound(yard)

    def test_losses_by_silence_count_like_those_by_restart(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = machine(yard)
        for _ in range(3):
            one.beat()
            only(one)
            later(yard, 301)
            expire(yard)
        assert shards(yard, batch_id)[0].cautious_at is not None

    def test_it_comes_alone_and_nothing_comes_beside_it(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=12)
        one = lost(machine(yard))
        assert numbers(one.claim(want=100).grants) == [0]
        assert no_of(one) == "yield"
        assert no_of(one, running=batch_id) == "yield"
        assert not has_work(yard, one)

    def test_a_worker_that_lost_it_before_a_row_began_costs_nothing(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        one.beat(grant.lease_id, unstarted=[grant.lease_id])
        one.dies()
        assert shards(yard, batch_id)[0].losses == 3

    def test_what_ends_it_otherwise_costs_nothing_and_leaves_it_cautious(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        one.start_row(grant.lease_id, 0)
        one.release(grant.lease_id)
        one.fail(only(one).lease_id)
        grant = only(one)
        for _ in range(4):
            later(yard, 10)
            one.beat()
        assert states(yard, grant.lease_id) == ["released"]  # a ghost
        job = shards(yard, batch_id)[0]
        assert (job.losses, job.attempts, job.rejected, job.state) == (3, 1, [], "queued")
        assert only(one).row_by_row

    def test_the_same_claim_again_gets_the_same_grant(self, yard: Yard) -> None:
        validated(yard)
        one = lost(machine(yard))
        first = one.claim(request="again")
        assert first.grants[0].row_by_row
        assert one.claim(request="again").grants == first.grants

    @pytest.mark.parametrize(("bound", "cautious_after"), [(2, 1), (3, 2), (4, 3), (9, 3)])
    def test_a_pool_that_bears_fewer_losses_begins_earlier(self, yard: Yard, bound: int, cautious_after: int) -> None:
        with yard.store.begin() as session:
            session.get_one(Pool, "gpu").max_losses = bound
        batch_id = validated(yard)
        one = lost(machine(yard), cautious_after - 1)
        assert shards(yard, batch_id)[0].cautious_at is None
        lost(one, 1)
        assert shards(yard, batch_id)[0].cautious_at is not None

    def test_a_pool_that_bears_one_loss_has_nobody_to_find_the_row(self, yard: Yard) -> None:
        with yard.store.begin() as session:
            session.get_one(Pool, "gpu").max_losses = 1
        batch_id = validated(yard)
        lost(machine(yard), 1)
        assert [job.state for job in shards(yard, batch_id)] == ["failed"]


class TestTheRowThatRan:
    def test_fails_alone_and_the_rest_completes(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=8)
        one = lost(machine(yard))
        grant = only(one)
        for row in (0, 1):
            assert one.start_row(grant.lease_id, row) == "start"
            one.hand_in(batch_id, {grant.lease_id: [row]})
        one.start_row(grant.lease_id, 2)
        one = one.dies()

        job = shards(yard, batch_id)[0]
        assert (job.state, job.losses, job.cautious_at) == ("queued", 0, None)
        assert "job.row_lost" in events(yard, batch_id)
        first, second = sorted(one.claim(want=8).grants, key=lambda grant: grant.number)
        assert (first.row_by_row, first.done) == (False, "0-1")
        assert [(rejected.row, rejected.code) for rejected in first.rejected] == [(2, "worker_lost")]
        one.hand_in(batch_id, {first.lease_id: [2]}, failed=True)
        one.hand_in(batch_id, {first.lease_id: [3]}, ends=[first.lease_id])
        one.finish(batch_id, second)
        Controller(yard).works()

        output, errors = result_files(yard, batch_id)
        assert [line["custom_id"] for line in output] == [f"row-{n}" for n in (0, 1, 3, 4, 5, 6, 7)]
        assert [line["custom_id"] for line in errors] == ["row-2"]
        ended = batch(yard, batch_id)
        assert (ended.state, ended.completed, ended.failed) == ("completed", 7, 1)
        assert_sound(yard)

    def test_says_which_worker_was_lost(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        one.start_row(only(one).lease_id, 3)
        one.dies()
        ((row, code, message),) = shards(yard, batch_id)[0].rejected
        assert (row, code) == (3, "worker_lost")
        assert message == "worker one was lost while it ran this row: it was started again without it"

    def test_is_nobody_once_it_was_handed_in(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        one.start_row(grant.lease_id, 0)
        one.hand_in(batch_id, {grant.lease_id: [0]})
        one.dies()
        job = shards(yard, batch_id)[0]
        assert (job.rejected, job.losses, job.state) == ([], 4, "queued")
        assert job.cautious_at is not None

    def test_is_the_last_one_named(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        for row in (0, 0, 3):
            assert one.start_row(grant.lease_id, row) == "start"
        one.dies()
        assert [row for row, *_ in shards(yard, batch_id)[0].rejected] == [3]

    def test_counts_though_a_beat_that_was_begun_before_it_came_after_it(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        one.start_row(grant.lease_id, 1)
        one.beat(grant.lease_id, unstarted=[grant.lease_id])
        one.dies()
        assert [row for row, *_ in shards(yard, batch_id)[0].rejected] == [1]

    def test_may_be_one_of_several_in_a_shard(self, yard: Yard) -> None:
        """Each costs four workers: three before it is looked for, and the one that named it."""
        batch_id = validated(yard)
        one = machine(yard)
        for row in (1, 2):
            one = lost(one)
            one.start_row(only(one).lease_id, row)
            one = one.dies()
        job = shards(yard, batch_id)[0]
        assert [row for row, *_ in job.rejected] == [1, 2]
        assert (job.state, job.losses) == ("queued", 0)

    def test_takes_the_whole_shard_with_it_where_none_was_named(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=2)
        lost(machine(yard), 5)
        assert [job.state for job in shards(yard, batch_id)] == ["failed"]
        Controller(yard).works()
        assert [line["error"]["code"] for line in result_files(yard, batch_id)[1]] == ["worker_lost"] * 2
        assert_sound(yard)

    def test_is_cancelled_like_the_others_when_its_batch_is(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        one.start_row(grant.lease_id, 0)
        cancel(yard, batch_id)
        assert one.start_row(grant.lease_id, 1) == "stop"
        one.dies()
        job = shards(yard, batch_id)[0]
        assert (job.state, job.rejected, job.cautious_at) == ("cancelled", [], None)
        Controller(yard).works()
        assert {line["error"]["code"] for line in result_files(yard, batch_id)[1]} == {"batch_cancelled"}
        assert_sound(yard)


class TestNamingARow:
    def test_of_a_lease_that_has_ended_is_refused(self, yard: Yard) -> None:
        validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        later(yard, 301)
        expire(yard)
        assert one.start_row(grant.lease_id, 0) == "stale"
        assert lease(yard, grant.lease_id).running_row is None

    def test_of_a_lease_of_another_worker_is_refused(self, yard: Yard) -> None:
        validated(yard)
        one, two = machine(yard), machine(yard, "two")
        grant = only(lost(one))
        assert two.start_row(grant.lease_id, 0) == "stale"

    @pytest.mark.parametrize("row", [0, 4, 99])
    def test_that_is_done_or_in_another_shard_is_refused(self, yard: Yard, row: int) -> None:
        batch_id = validated(yard, rows=8)
        one = lost(machine(yard))
        grant = only(one)
        one.hand_in(batch_id, {grant.lease_id: [0]})
        with pytest.raises(BadRequest):
            one.start_row(grant.lease_id, row)

    def test_by_a_superseded_process_is_refused(self, yard: Yard) -> None:
        validated(yard)
        one = lost(machine(yard))
        grant = only(one)
        again = one.restarted()
        again.hello(held=[grant.lease_id])
        with pytest.raises(Conflict):
            one.start_row(grant.lease_id, 0)
        assert again.start_row(grant.lease_id, 0) == "start"
