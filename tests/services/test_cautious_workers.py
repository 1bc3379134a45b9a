"""Who runs a cautious shard, who makes room for it, and what of that is told (PROTOCOL 5)."""

import pytest

from app.services import batches, polls, rings
from app.services.context import Yard
from tests.losses import has_work, lost, no_of, numbers, only
from tests.yards import (
    USER,
    assert_sound,
    batch,
    events,
    later,
    lease,
    machine,
    shards,
    validated,
)


class TestWhoRunsIt:
    def test_a_busy_worker_is_chosen_and_gets_nothing_until_it_holds_nothing(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=12)
        busy = machine(yard, "busy")
        grants = busy.claim(want=8).grants
        assert numbers(grants) == [0, 1]
        other = lost(machine(yard, "other"))
        other.bye()
        assert no_of(busy, running=batch_id) == "yield"
        assert "job.reserved" in events(yard, batch_id)
        assert not has_work(yard, busy)
        busy.finish(batch_id, grants[0])
        assert no_of(busy, running=batch_id) == "yield"
        busy.finish(batch_id, grants[1])
        assert has_work(yard, busy)
        grant = only(busy)
        assert (grant.number, grant.row_by_row) == (2, True)
        assert_sound(yard)

    def test_one_alone_is_chosen_and_the_others_go_on(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=40)
        one, two = machine(yard, "one"), machine(yard, "two")
        only(one)
        only(two)
        lost(machine(yard, "three")).bye()
        assert no_of(one) == "yield"
        assert numbers(two.claim(running=batch_id).grants) == [3]

    def test_who_is_idle_takes_it_from_who_is_busy(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=40)
        busy = machine(yard, "busy")
        only(busy)
        idle = lost(machine(yard, "idle"))
        assert no_of(busy) == "yield"
        assert only(idle).row_by_row
        assert numbers(busy.claim(running=batch_id).grants) == [2]
        assert_sound(yard)

    @pytest.mark.parametrize("how", ["silent", "drains", "left", "no model"])
    def test_another_is_chosen_when_the_chosen_one_cannot(self, yard: Yard, how: str) -> None:
        batch_id = validated(yard, rows=40)
        first, second = machine(yard, "first"), machine(yard, "second")
        only(first)
        only(second)
        lost(machine(yard, "third")).bye()
        assert no_of(first) == "yield"
        if how == "silent":
            later(yard, 51)
        elif how == "drains":
            first.beat(*first.grants, phase="draining")
        elif how == "left":
            first.bye()
        else:
            first.beat(*first.grants, runtimes=[])
        assert no_of(second, running=batch_id) == "yield"
        assert shards(yard, batch_id)[2].cautious_worker_id == second.id
        assert_sound(yard)

    def test_two_shards_are_run_by_two_workers(self, yard: Yard) -> None:
        validated(yard, rows=8)
        one, two = machine(yard, "one"), machine(yard, "two")
        for _ in range(3):
            only(one)
            only(two)
            one, two = one.dies(), two.dies()
        assert numbers([only(one), only(two)]) == [0, 1]
        assert no_of(one) == no_of(two) == "yield"

    def test_two_shards_are_run_by_one_worker_one_after_the_other(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=8)
        one, two = machine(yard, "one"), machine(yard, "two")
        for _ in range(3):
            only(one)
            only(two)
            one, two = one.dies(), two.dies()
        two.bye()
        for number in (0, 1):
            grant = only(one)
            assert (grant.number, grant.row_by_row) == (number, True)
            one.finish(batch_id, grant)
        assert batch(yard, batch_id).state == "finalizing"
        assert_sound(yard)

    def test_more_urgent_work_goes_first(self, yard: Yard) -> None:
        slow = validated(yard)
        one = lost(machine(yard))
        urgent = validated(yard, priority=9)
        answer = one.claim()
        assert answer.batch is not None
        assert answer.batch.id == urgent
        assert has_work(yard, one) is False  # it would be told to make room: nothing is to be had
        one.finish(urgent, answer.grants[0])
        grant = only(one)
        assert grant.row_by_row
        assert lease(yard, grant.lease_id).batch_id == slow

    def test_it_hides_nothing_from_who_cannot_run_it(self, yard: Yard) -> None:
        careful = validated(yard, models=["a"])
        lost(machine(yard, "one", models=["a"])).bye()
        two = machine(yard, "two", models=["b"])
        behind = validated(yard, models=["b"])
        answer = two.claim()
        assert answer.batch is not None
        assert answer.batch.id == behind
        assert shards(yard, careful)[0].cautious_worker_id is None

    def test_an_older_worker_does_not_while_one_is_there_that_knows_how(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=8)
        knows = lost(machine(yard, "knows"))
        older = machine(yard, "older", row_by_row=False)
        assert numbers(older.claim(want=8).grants) == [1]
        older.finish(batch_id, next(iter(older.grants.values())))
        assert no_of(older) == "nothing"
        assert not has_work(yard, older)
        assert only(knows).row_by_row

    def test_an_older_worker_runs_it_as_it_knows_to_where_nobody_knows_how(self, yard: Yard) -> None:
        """Or it would never end: the bound on losses ends it, as before there was another way."""
        batch_id = validated(yard, rows=8)
        older = lost(machine(yard, "older", row_by_row=False))
        assert numbers(older.claim(want=8).grants) == [0]
        older = lost(older.dies(), 1)
        assert [job.state for job in shards(yard, batch_id)] == ["failed", "queued"]
        assert numbers(older.claim(want=8).grants) == [1]


class TestWhatPeopleAndBellsSay:
    def test_a_batch_says_for_whom_its_shard_waits(self, yard: Yard) -> None:
        batch_id = validated(yard, rows=12)
        busy = machine(yard, "busy")
        only(busy)
        lost(machine(yard, "other")).bye()
        no_of(busy)
        said = batches.retrieve(yard, USER, batch_id).gpuyard.waiting_reason
        assert said == "shard 1 lost several workers and runs row by row once worker busy holds nothing else"

    def test_a_batch_with_nothing_else_is_rung(self, yard: Yard) -> None:
        batch_id = validated(yard)
        one = lost(machine(yard))
        assert has_work(yard, one)
        assert batch_id in dict(rings.unheard(yard, 100)[0])
        assert polls.whats_new(yard, ["gpu"]).work["gpu"].wanted == 1
