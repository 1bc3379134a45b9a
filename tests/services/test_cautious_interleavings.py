"""PROTOCOL 5, cautious shards: two transactions that meet, each order forced (tests.interleaving)."""

from app.services.context import Yard
from tests.interleaving import doing, held
from tests.losses import lost, only
from tests.yards import (
    Machine,
    assert_sound,
    batch,
    cancel,
    events,
    expire,
    later,
    lease,
    machine,
    shards,
    states,
    validated,
)


def two_are_busy(yard: Yard) -> tuple[str, Machine, Machine]:
    """A batch with a cautious shard, and two workers that each hold another shard of it."""
    batch_id = validated(yard, rows=40)
    one, two = machine(yard, "one"), machine(yard, "two")
    only(one)
    only(two)
    lost(machine(yard, "three")).bye()
    return batch_id, one, two


def test_a_name_that_comes_first_is_the_row_that_is_lost(yard: Yard) -> None:
    batch_id = validated(yard)
    one = lost(machine(yard))
    grant = only(one)
    later(yard, 301)
    with held(yard.store, lambda: one.start_row(grant.lease_id, 2), at_commit_after="UPDATE lease") as name:
        # On PostgreSQL the sweep passes by a lease that somebody is at; on SQLite it waits.
        expiry = doing(lambda: expire(yard))
        if yard.store.dialect == "postgresql":
            assert expiry.result() == 0
    assert name.result() == "start"
    expiry.result()
    expire(yard)
    assert states(yard, grant.lease_id) == ["expired"]
    assert [row for row, *_ in shards(yard, batch_id)[0].rejected] == [2]
    assert_sound(yard)


def test_a_name_that_comes_after_the_end_starts_no_row(yard: Yard) -> None:
    batch_id = validated(yard)
    one = lost(machine(yard))
    grant = only(one)
    later(yard, 301)
    with held(yard.store, lambda: expire(yard), at_commit_after="UPDATE lease") as expiry:
        name = doing(lambda: one.start_row(grant.lease_id, 2))
        name.assert_waits(yard.store)
    assert expiry.result() == 1
    assert name.result() == "stale"
    job = shards(yard, batch_id)[0]
    assert (job.rejected, job.losses) == ([], 4)
    assert_sound(yard)


def test_a_restart_waits_for_a_name_and_costs_that_row(yard: Yard) -> None:
    batch_id = validated(yard)
    one = lost(machine(yard))
    grant = only(one)
    with held(yard.store, lambda: one.start_row(grant.lease_id, 2), at_commit_after="UPDATE lease"):
        again = doing(one.dies)
        again.assert_waits(yard.store)
    again.result()
    assert [row for row, *_ in shards(yard, batch_id)[0].rejected] == [2]
    assert_sound(yard)


def test_a_hand_in_that_comes_first_clears_its_row(yard: Yard) -> None:
    batch_id = validated(yard)
    one = lost(machine(yard))
    grant = only(one)
    one.start_row(grant.lease_id, 2)
    with held(yard.store, lambda: one.hand_in(batch_id, {grant.lease_id: [2]}), at_commit_after="INSERT INTO segment"):
        again = doing(one.dies)
        again.assert_waits(yard.store)
    again.result()
    job = shards(yard, batch_id)[0]
    assert (job.rejected, job.done_rows, job.losses) == ([], "2", 4)
    assert_sound(yard)


def test_a_hand_in_that_comes_after_the_end_changes_no_verdict(yard: Yard) -> None:
    """The row was found guilty and is answered so; its late answer is refused, and it ends once."""
    batch_id = validated(yard)
    one = lost(machine(yard))
    grant = only(one)
    one.start_row(grant.lease_id, 2)
    later(yard, 301)
    with held(yard.store, lambda: expire(yard), at_commit_after="UPDATE lease"):
        late = doing(lambda: one.hand_in(batch_id, {grant.lease_id: [2]}))
        late.assert_waits(yard.store)
    assert late.result().parts == {grant.lease_id: "stale"}
    assert [row for row, *_ in shards(yard, batch_id)[0].rejected] == [2]
    assert_sound(yard)


def test_two_idle_workers_never_get_one_cautious_shard(yard: Yard) -> None:
    validated(yard)
    one, two = lost(machine(yard, "one")), machine(yard, "two")
    with held(yard.store, one.claim, at_commit_after="UPDATE job") as first:
        second = doing(two.claim)
        if yard.store.dialect == "postgresql":  # it passes by; on SQLite it waits
            assert second.result().no == "nothing"
    assert len(first.result().grants) == 1
    assert second.result().grants == []
    assert_sound(yard)


def test_two_busy_workers_are_never_both_chosen(yard: Yard) -> None:
    batch_id, one, two = two_are_busy(yard)
    with held(yard.store, one.claim, at_commit_after="UPDATE job") as first:
        second = doing(two.claim)
        if yard.store.dialect == "postgresql":
            assert len(second.result().grants) == 1
    assert first.result().no == "yield"
    assert len(second.result().grants) == 1
    assert events(yard, batch_id).count("job.reserved") == 1
    assert shards(yard, batch_id)[2].cautious_worker_id == one.id
    assert_sound(yard)


def test_an_idle_worker_that_comes_while_another_is_being_chosen_waits_for_nobody(yard: Yard) -> None:
    batch_id = validated(yard, rows=40)
    busy = machine(yard, "busy")
    only(busy)
    idle = lost(machine(yard, "idle"))
    with held(yard.store, busy.claim, at_commit_after="UPDATE job") as chosen:
        claim = doing(idle.claim)
        if yard.store.dialect == "postgresql":
            assert [grant.number for grant in claim.result().grants] == [2]
    assert chosen.result().no == "yield"
    claim.result()
    assert len([job for job in shards(yard, batch_id) if job.state == "leased"]) == 2
    assert_sound(yard)


def test_a_cancel_waits_for_a_choice_and_takes_the_shard(yard: Yard) -> None:
    batch_id = validated(yard, rows=40)
    busy = machine(yard, "busy")
    only(busy)
    lost(machine(yard, "other")).bye()
    with held(yard.store, busy.claim, at_commit_after="UPDATE job") as chosen:
        stop = doing(lambda: cancel(yard, batch_id))
        stop.assert_waits(yard.store)
    assert chosen.result().no == "yield"
    stop.result()
    job = shards(yard, batch_id)[1]
    assert (job.state, job.cautious_at, job.cautious_worker_id) == ("cancelled", None, None)
    assert_sound(yard)


def test_a_cancel_that_comes_between_makes_the_cautious_claim_give_way(yard: Yard) -> None:
    batch_id = validated(yard)
    one = lost(machine(yard))
    with held(yard.store, one.claim, before="UPDATE batch SET state") as claim:
        stop = doing(lambda: cancel(yard, batch_id))
        stop.assert_waits(yard.store)
    answer = claim.result()
    stop.result()
    if yard.store.dialect == "postgresql":
        assert answer.no == "nothing"
        assert [job.state for job in shards(yard, batch_id)] == ["cancelled"]
    else:  # the cancel waited for the whole claim
        assert states(yard, answer.grants[0].lease_id) == ["stopping"]
    assert_sound(yard)


def test_a_cancel_waits_for_a_name_and_takes_no_row_for_guilty(yard: Yard) -> None:
    batch_id = validated(yard)
    one = lost(machine(yard))
    grant = only(one)
    with held(yard.store, lambda: one.start_row(grant.lease_id, 0), at_commit_after="UPDATE lease") as name:
        stop = doing(lambda: cancel(yard, batch_id))
        stop.assert_waits(yard.store)
    assert name.result() == "start"
    stop.result()
    assert (lease(yard, grant.lease_id).state, batch(yard, batch_id).outcome) == ("stopping", "cancelled")
    assert one.start_row(grant.lease_id, 1) == "stop"
    one.dies()
    assert [(job.state, job.rejected) for job in shards(yard, batch_id)] == [("cancelled", [])]
    assert_sound(yard)


def test_a_choice_that_came_after_the_look_at_the_shard_stands(yard: Yard) -> None:
    batch_id, one, two = two_are_busy(yard)
    # The second time that it reads whole jobs is where it locks the shard it has seen.
    with held(yard.store, two.claim, before="SELECT job.id, job.kind", nth=2) as second:
        first = doing(one.claim)
        if yard.store.dialect == "postgresql":
            assert first.result().no == "yield"
    assert sorted(len(claim.result().grants) for claim in (first, second)) == [0, 1]
    assert events(yard, batch_id).count("job.reserved") == 1
    assert_sound(yard)
