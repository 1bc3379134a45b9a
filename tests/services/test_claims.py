"""PROTOCOL 6: whose turn it is, when a worker yields, how much it gets, and what each answer says of waiting work."""

from datetime import timedelta

import pytest
from sqlmodel import select

from app.db.claims import WINDOW
from app.db.tables import Batch, Job, Pool
from app.domain.jobs import JobKind
from app.domain.workers import Phase
from app.services.context import Yard
from tests.yards import Machine, assert_sound, batch, busy, cancel, later, machine, set_rungs, shards, validated


def claimed(one: Machine, **asked: object) -> str | None:
    brief = one.claim(**asked).batch  # type: ignore[arg-type]
    return brief.id if brief else None


def roomy(yard: Yard, name: str = "one") -> Machine:
    return machine(yard, name, slots=50)


def test_priority_goes_first_then_deadline_then_age(yard: Yard) -> None:
    old = validated(yard, rows=1, window="2h")
    soon = validated(yard, rows=1, window="1h")
    young = validated(yard, rows=1, window="2h")
    urgent = validated(yard, rows=1, priority=5, window="24h")
    one = roomy(yard)
    assert [claimed(one) for _ in range(4)] == [urgent, soon, old, young]
    assert one.claim().no == "nothing"


def test_of_equal_deadlines_the_group_with_the_fewest_live_goes_first(yard: Yard) -> None:
    # Deadlines within one minute are equal: start well within one.
    with yard.store.read() as session:
        seconds = yard.store.now(session).timestamp() % 60
    yard.store.clock_shift += timedelta(seconds=60 - seconds)
    first, second = (validated(yard, rows=8, group="many") for _ in range(2))
    third = validated(yard, rows=8, group="few")
    one = roomy(yard)
    machine(yard, "idle")  # so that each claim gets one shard
    turns = [claimed(one) for _ in range(6)]
    assert turns[:3] == [first, third, first]
    assert sorted(map(str, turns)) == sorted([first, first, second, second, third, third])


def test_a_running_batch_yields_to_more_urgent_work_only(yard: Yard) -> None:
    running = validated(yard, rows=8)
    one = roomy(yard)
    machine(yard, "idle")
    assert claimed(one) == running
    validated(yard, rows=4, window="48h")
    assert claimed(one, running=running) == running
    more = validated(yard, rows=8)
    urgent = validated(yard, rows=4, priority=1)
    answer = one.claim(running=running)
    assert (answer.no, answer.work) == ("nothing", True)  # it has no shard left
    assert claimed(one) == urgent
    assert claimed(one) == more
    urgent = validated(yard, rows=4, priority=2)
    answer = one.claim(running=more)
    assert (answer.no, answer.work) == ("yield", True)


def test_a_worker_gets_what_covers_the_rows_it_wants(yard: Yard) -> None:
    batch_id = validated(yard, rows=40)
    one = machine(yard)
    assert len(one.claim(want=1).grants) == 1
    assert len(one.claim(want=9, running=batch_id).grants) == 3
    assert len(one.claim(want=10_000, running=batch_id).grants) == 6
    assert one.claim(want=1, running=batch_id).no == "nothing"
    assert_sound(yard)


def test_rows_that_are_done_do_not_count_as_wanted(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    (grant,) = one.claim(want=4).grants
    one.hand_in(batch_id, {grant.lease_id: [0, 1, 2]})
    one.release(grant.lease_id)
    assert [g.done for g in one.claim(want=4).grants] == ["0-2", ""]


def test_one_shard_at_a_time_while_others_are_idle(yard: Yard) -> None:
    batch_id = validated(yard, rows=24)
    one, idle = machine(yard, "one"), machine(yard, "idle")
    assert len(one.claim(want=12).grants) == 1
    idle.claim()
    assert len(one.claim(want=12, running=batch_id).grants) == 3


@pytest.mark.parametrize("why", ["silent", "gone", "draining"])
def test_who_cannot_take_work_is_not_idle(yard: Yard, why: str) -> None:
    validated(yard, rows=24)
    other = machine(yard, "other")
    if why == "silent":
        later(yard, 60)
    elif why == "gone":
        other.bye()
    else:
        other.beat(phase=Phase.DRAINING)
    one = machine(yard, "one")
    assert len(one.claim(want=12).grants) == 3


@pytest.mark.parametrize(("grace", "shards"), [(20.0, 3), (200.0, 1)])
def test_who_is_idle_is_known_by_the_grace_of_their_pool(yard: Yard, grace: float, shards: int) -> None:
    """Silent for longer than the one grace, and for less than the other; the service has fifty seconds."""
    validated(yard, rows=24)
    set_rungs(yard, renew_seconds=grace / 4, grace_seconds=grace, toleration_seconds=900.0)
    machine(yard, "other")
    later(yard, 30 if grace < 50 else 60)
    assert len(machine(yard, "one").claim(want=12).grants) == shards


def test_what_waits_for_another_model_hides_nothing(yard: Yard) -> None:
    """More batches that this worker cannot serve than a claim looks at together stand before the one it can."""
    other = machine(yard, "other", models=["m", "rare"])
    first = validated(yard, rows=4, models=["rare"])
    with yard.store.begin() as session:  # copies of one are quicker than so many creations
        one = session.exec(select(Batch).where(Batch.id == first)).one()
        job = session.exec(select(Job).where(Job.batch_id == first, Job.kind == JobKind.SHARD)).one()
        for number in range(WINDOW + 3):
            copy = Batch(**(one.model_dump(exclude={"seq"}) | {"id": f"{first}_{number}"}))
            session.add(copy)
            session.flush()
            session.add(Job(**(job.model_dump(exclude={"id"}) | {"batch_id": copy.id})))
    servable = validated(yard, rows=4)
    assert claimed(machine(yard, "one")) == servable
    assert claimed(other) == first


def test_a_batch_whose_queued_shards_need_another_model_hides_nothing(yard: Yard) -> None:
    """Its other shards are out already: what is left of the first batch is not for this worker."""
    content_models = ["m"] * 4 + ["rare"] * 4
    machine(yard, "other", models=["m", "rare"]).bye()
    mixed = validated(yard, rows=8, models=content_models)
    second = validated(yard, rows=8)
    one, two = machine(yard, "one", slots=5), machine(yard, "two", slots=5)
    assert claimed(one) == mixed
    assert [job.state for job in shards(yard, mixed)] == ["leased", "queued"]
    assert two.beat().work is True
    assert claimed(two) == second
    assert one.claim(running=mixed).no == "nothing"


@pytest.mark.parametrize(
    ("sample", "no"), [(busy(load1=9.0), "load"), (busy(memory=10**9), "memory"), (busy(9.0, 10**9), "memory")]
)
def test_a_busy_host_is_given_nothing(yard: Yard, sample: object, no: str) -> None:
    with yard.store.begin() as session:
        pool = session.get(Pool, "gpu")
        assert pool is not None
        pool.max_load, pool.min_memory_gb = 4.0, 8.0
        session.add(pool)
    validated(yard)
    one = machine(yard)
    assert one.beat(sample=sample).work is False
    assert one.claim().no == no
    assert one.beat(sample=busy()).work is True


def test_every_answer_says_whether_there_is_work(yard: Yard) -> None:
    batch_id = validated(yard, rows=16)
    one = machine(yard, slots=2)
    assert one.beat().work is True
    first, second, third, fourth = one.claim(want=16).grants
    assert one.beat(*one.grants).work is False
    assert one.release(fourth.lease_id).work is True
    one.claim()
    assert one.fail(third.lease_id).work is True
    one.claim()
    assert one.finish(batch_id, first).work is False
    validated(yard)
    assert one.finish(batch_id, second).work is True


def test_a_batch_that_was_told_to_end_is_never_claimed(yard: Yard) -> None:
    first, second = validated(yard), validated(yard)
    cancel(yard, first)
    one = machine(yard, slots=5)
    assert claimed(one) == second
    assert one.claim(running=first).no == "nothing"


def test_a_batch_of_another_pool_is_never_claimed_not_even_as_one_that_runs_here(yard: Yard) -> None:
    with yard.store.begin() as session:
        session.add(Pool(name="private", created_at=yard.store.now(session)))
    theirs = validated(yard, pool="private")
    validated(yard)
    one = machine(yard)
    assert one.claim(running=theirs).no == "nothing"
    assert_sound(yard)


def test_a_batch_whose_window_is_over_is_never_claimed(yard: Yard) -> None:
    validated(yard, window="1h")
    later(yard, 3601, listening=False)
    one = machine(yard)
    assert one.claim().no == "nothing"


def test_a_batch_waits_again_when_nothing_of_it_is_leased(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    first, second = one.claim(want=8).grants
    one.release(first.lease_id)
    assert batch(yard, batch_id).state == "in_progress"
    one.release(second.lease_id)
    assert batch(yard, batch_id).state == "validated"
    one.claim()
    assert batch(yard, batch_id).state == "in_progress"
    assert_sound(yard)


def test_a_pools_slots_are_those_of_each_of_its_workers_and_a_change_counts_from_the_next_beat(yard: Yard) -> None:
    one = machine(yard, slots=1)
    assert one.hello().slots == 1
    with yard.store.begin() as session:
        pool = session.get(Pool, "gpu")
        assert pool is not None
        pool.slots = {"batches": 3}
        session.add(pool)
    assert one.beat().slots == 3
    assert one.restarted().hello().slots == 3


def test_a_batch_without_a_group_is_its_own_group(yard: Yard) -> None:
    busy_one, idle_one = validated(yard, 8), validated(yard, 8)
    first, second = machine(yard, "one"), machine(yard, "two")
    taken = first.claim(want=4).batch
    assert taken is not None
    assert taken.id == busy_one
    other = second.claim(want=4).batch
    assert other is not None
    assert other.id == idle_one
