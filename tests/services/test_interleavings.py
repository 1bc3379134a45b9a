"""PROTOCOL 1: the bad interleavings, forced. One transaction is held open, another one starts, and all is sound."""

from pathlib import Path

import pytest
from sqlalchemy import text

from app.db.store import Store
from app.domain.errors import Refusal
from app.services import presence
from app.services.context import Yard
from app.sweeps import batch_expiry
from tests.databases import Databases
from tests.interleaving import Doer, doing, held
from tests.migrated import migrate
from tests.yards import (
    Controller,
    Machine,
    assert_sound,
    batch,
    cancel,
    created,
    events,
    expire,
    later,
    lease,
    machine,
    new_yard,
    shards,
    states,
    validated,
)


def test_two_last_reports_make_one_finalizing_job(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    (mine,), (yours,) = one.claim().grants, two.claim().grants
    with held(yard.store, lambda: one.finish(batch_id, mine), at_commit_after="UPDATE batch") as first:
        second = doing(lambda: two.finish(batch_id, yours))
        second.assert_waits(yard.store)
    assert first.result().ends == {mine.lease_id: "ended"}
    assert second.result().ends == {yours.lease_id: "ended"}
    ended = batch(yard, batch_id)
    assert (ended.state, ended.live, ended.open_jobs) == ("finalizing", 0, 0)
    assert events(yard, batch_id).count("batch.finalizing") == 1
    assert_sound(yard)


def test_an_expiry_that_comes_first_makes_the_hand_in_stale(yard: Yard) -> None:
    batch_id = validated(yard)
    one, two = machine(yard, "one"), machine(yard, "two")
    (grant,) = one.claim().grants
    one.hand_in(batch_id, {grant.lease_id: [0]})
    later(yard, 301)
    with held(yard.store, lambda: expire(yard), at_commit_after="UPDATE lease") as expiry:
        hand_in = doing(lambda: one.hand_in(batch_id, {grant.lease_id: [1, 2]}))
        hand_in.assert_waits(yard.store)
    assert expiry.result() == 1
    assert hand_in.result().parts == {grant.lease_id: "stale"}
    two.beat()
    (again,) = two.claim().grants
    assert again.done == "0"
    assert_sound(yard)


def test_a_hand_in_that_comes_first_is_seen_by_the_next_claim(yard: Yard) -> None:
    batch_id = validated(yard)
    one, two = machine(yard, "one"), machine(yard, "two")
    (grant,) = one.claim().grants
    later(yard, 301)
    two.beat()
    with held(
        yard.store, lambda: one.hand_in(batch_id, {grant.lease_id: [1, 2]}), at_commit_after="INSERT INTO segment"
    ):
        # On PostgreSQL the sweep passes by a lease that somebody is at; on SQLite it waits.
        expiry = doing(lambda: expire(yard))
        if yard.store.dialect == "postgresql":
            assert expiry.result() == 0
    expiry.result()
    expire(yard)
    assert states(yard, grant.lease_id) == ["expired"]
    (again,) = two.claim().grants
    assert again.done == "1-2"
    assert_sound(yard)


def test_two_hand_ins_of_one_part_store_it_once(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    with held(
        yard.store, lambda: one.hand_in(batch_id, {grant.lease_id: [0]}, seq=1), at_commit_after="INSERT INTO segment"
    ) as first:
        second = doing(lambda: one.hand_in(batch_id, {grant.lease_id: [0]}, seq=1))
        second.assert_waits(yard.store)
    assert first.result().parts == {grant.lease_id: "stored"}
    assert second.result().parts == {grant.lease_id: "duplicate"}
    assert_sound(yard)


def test_a_cancel_that_comes_between_makes_the_claim_give_way(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    with held(yard.store, one.claim, before="UPDATE batch SET state") as claim:
        stop = doing(lambda: cancel(yard, batch_id))
        stop.assert_waits(yard.store)
        decided = batch(yard, batch_id).outcome
    answer = claim.result()
    stop.result()
    assert_sound(yard)
    if yard.store.dialect == "postgresql":
        assert decided == "cancelled"
        assert answer.no == "nothing"
        assert [job.state for job in shards(yard, batch_id)] == ["cancelled"]
    else:  # the cancel waited for the whole claim
        assert states(yard, answer.grants[0].lease_id) == ["stopping"]


def test_a_claim_that_comes_first_is_told_to_stop(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    with held(yard.store, one.claim, at_commit_after="UPDATE batch SET state") as claim:
        stop = doing(lambda: cancel(yard, batch_id))
        stop.assert_waits(yard.store)
    (grant,) = claim.result().grants
    stop.result()
    assert states(yard, grant.lease_id) == ["stopping"]
    assert batch(yard, batch_id).state == "in_progress"
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "stop"}
    assert_sound(yard)


def test_a_cancel_that_comes_first_finds_the_queue_empty_of_claims(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    with held(yard.store, lambda: cancel(yard, batch_id), at_commit_after="UPDATE batch SET outcome"):
        claim = doing(one.claim)
        claim.assert_waits(yard.store)
    assert claim.result().no == "nothing"
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)


@pytest.mark.parametrize("end", ["release", "expiry"])
def test_a_job_given_back_while_its_batch_is_cancelled_is_never_queued_again(yard: Yard, end: str) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    later(yard, 301 if end == "expiry" else 0)
    give_back = (lambda: one.release(grant.lease_id)) if end == "release" else (lambda: expire(yard))
    with held(yard.store, lambda: cancel(yard, batch_id), at_commit_after="UPDATE batch SET outcome"):
        back = doing(give_back)
        back.assert_waits(yard.store)
    back.result()
    batch_expiry.run_once(yard, 100)
    assert [job.state for job in shards(yard, batch_id)] == ["cancelled"]
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)


@pytest.mark.parametrize("end", ["release", "expiry"])
def test_a_cancel_finds_a_job_that_was_just_given_back(yard: Yard, end: str) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    later(yard, 301 if end == "expiry" else 0)
    give_back = (lambda: one.release(grant.lease_id)) if end == "release" else (lambda: expire(yard))
    with held(yard.store, give_back, at_commit_after="UPDATE batch"):
        stop = doing(lambda: cancel(yard, batch_id))
        stop.assert_waits(yard.store)
    stop.result()
    assert [job.state for job in shards(yard, batch_id)] == ["cancelled"]
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)


def test_two_claims_of_one_worker_cannot_both_take_its_last_slot(yard: Yard) -> None:
    # One slot, and one more for the overlap of two batches: the third batch finds none.
    batches = [validated(yard, rows=1) for _ in range(3)]
    one = machine(yard)
    one.claim()
    with held(yard.store, one.claim, at_commit_after="UPDATE batch SET state") as second:
        third = doing(one.claim)
        third.assert_waits(yard.store)
    assert second.result().grants
    assert third.result().no == "slots"
    assert sum(batch(yard, batch_id).live for batch_id in batches) == 2
    assert_sound(yard)


def test_two_workers_never_get_one_shard(yard: Yard) -> None:
    batch_id = validated(yard, rows=4)
    one, two = machine(yard, "one"), machine(yard, "two")
    with held(yard.store, one.claim, at_commit_after="UPDATE batch SET state") as first:
        second = doing(two.claim)
        if yard.store.dialect == "postgresql":
            assert second.result().no == "nothing"  # locked rows are passed by, nobody waits
    assert len(first.result().grants) == 1
    assert second.result().no == "nothing"
    assert batch(yard, batch_id).live == 1
    assert_sound(yard)


def test_a_claim_locks_no_more_shards_than_it_takes(yard: Yard) -> None:
    batch_id = validated(yard, rows=16)
    one, two = machine(yard, "one"), machine(yard, "two")
    one.claim()
    two.claim()
    with held(yard.store, one.claim, before="UPDATE batch SET state") as first:
        second = doing(two.claim)
        if yard.store.dialect == "postgresql":
            assert len(second.result().grants) == 1
    assert len(first.result().grants) == 1
    assert len(second.result().grants) == 1
    assert batch(yard, batch_id).live == 4


def test_a_beat_in_the_middle_of_a_restart_renews_nothing(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    before = lease(yard, grant.lease_id).expires_at
    again = one.restarted()
    later(yard, 5)
    with held(yard.store, again.hello, at_commit_after="UPDATE worker"):
        beat = doing(lambda: one.beat(grant.lease_id))
        if yard.store.dialect == "sqlite":
            beat.assert_waits(yard.store)
    assert refusal(beat) == "superseded"
    assert lease(yard, grant.lease_id).state == "expired" or lease(yard, grant.lease_id).expires_at == before
    assert_sound(yard)


@pytest.mark.postgres
def test_a_beat_that_a_restart_overtakes_renews_nothing(postgres_databases: Databases, tmp_path: Path) -> None:
    store = Store(postgres_databases.copy_of(migrate))
    yard = new_yard(store, tmp_path / "blobs")
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    with held(store, lambda: one.beat(grant.lease_id), before="SELECT lease.id") as beat:
        one.restarted().hello(held=[grant.lease_id])
        renewed = lease(yard, grant.lease_id).expires_at
        later(yard, 5)
    assert refusal(beat) == "superseded"
    assert lease(yard, grant.lease_id).expires_at == renewed
    store.close()


def test_a_slow_hello_ends_nothing_that_a_later_boot_claimed(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    slow, quick = one.restarted(), one.restarted()
    # Its row is written and committed; the next thing it does is to look after leases.
    with held(yard.store, slow.hello, before="SELECT lease.id") as first:
        if yard.store.dialect == "sqlite":
            return  # one writer at a time: nobody comes in between
        quick.hello()
        (grant,) = quick.claim().grants
    first.result()
    assert states(yard, grant.lease_id) == ["held"]
    assert batch(yard, batch_id).live == 1


def test_two_first_hellos_of_one_name_end_with_one_worker(yard: Yard) -> None:
    one, other = machine_without_hello(yard, "a"), machine_without_hello(yard, "b")
    with held(yard.store, one.hello, at_commit_after="INSERT INTO worker") as first:
        second = doing(other.hello)
        second.assert_waits(yard.store)
    first.result()
    assert refusal(second) == "name_taken"


def test_a_sweep_passes_by_a_lease_that_somebody_is_at(postgres_databases: Databases, tmp_path: Path) -> None:
    """SQLite has one writer at a time, so there nobody is at anything meanwhile."""
    yard = new_yard(Store(postgres_databases.copy_of(migrate)), tmp_path)
    batch_id = validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    (mine,), (yours,) = one.claim().grants, two.claim().grants
    later(yard, 301)
    with held(yard.store, lambda: one.hand_in(batch_id, {mine.lease_id: [0]}), at_commit_after="UPDATE job"):
        sweep = doing(lambda: expire(yard))
        assert sweep.result() == 1, "it waits for nobody"
        assert lease(yard, yours.lease_id).state == "expired"
    assert lease(yard, mine.lease_id).state == "held"
    assert expire(yard) == 1, "and comes again"
    assert_sound(yard)
    yard.store.close()


def test_renewals_and_absence_lock_leases_in_one_order(yard: Yard) -> None:
    batch_id = validated(yard, rows=40)
    one = machine(yard)
    grants = one.claim(want=40).grants
    listed = [grant.lease_id for grant in grants]
    later(yard, 60, listening=False)
    with held(yard.store, lambda: presence.tick(yard), at_commit_after="UPDATE lease") as tick:
        beat = doing(lambda: one.beat(*listed))
        beat.assert_waits(yard.store)
    assert tick.result() is not None
    assert set(beat.result().leases.values()) == {"renewed"}
    assert batch(yard, batch_id).live == 10


def test_lease_ids_never_come_again(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    one.release(grant.lease_id)
    with yard.store.begin() as session:
        session.execute(text("DELETE FROM lease"))
    (again,) = one.claim().grants
    assert again.lease_id > grant.lease_id


def test_control_work_of_a_batch_is_granted_once(yard: Yard) -> None:
    created(yard)
    one, two = Controller(yard, "control-1").hello(), Controller(yard, "control-2").hello()
    with held(yard.store, one.claims, at_commit_after="INSERT INTO lease") as first:
        second = doing(two.claims)
        if yard.store.dialect == "postgresql":
            assert second.result() is None
    assert first.result() is not None
    assert second.result() is None
    assert_sound(yard)


def machine_without_hello(yard: Yard, install: str) -> Machine:
    return Machine(yard, "same", install_id=install)


def refusal(doer: Doer[object]) -> str | None:
    with pytest.raises(Refusal) as refused:
        doer.result()
    return refused.value.code
