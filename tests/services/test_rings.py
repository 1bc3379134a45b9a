"""PROTOCOL 6: what is rung, how often, and by whom: noted by compare-and-set before anything is published."""

from dataclasses import dataclass, field, replace

from app.domain.jobs import ControlVerb
from app.services import rings
from app.services.context import BatchRing, ControlRing, Yard
from app.sweeps import requeue
from tests.interleaving import doing, held
from tests.yards import Controller, cancel, control_job, created, later, machine, set_rungs, validated


@dataclass
class Bells:
    """Bells that note what was asked of them."""

    rung: list[tuple[str, str, float]] = field(default_factory=list)
    published: list[BatchRing | ControlRing] = field(default_factory=list)
    heard: bool = True
    trouble: str | None = None

    def publish(self, ring: BatchRing | ControlRing) -> None:
        self.published.append(ring)

    def batch(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        self.rung.append(("batch", batch_id, quiet_seconds))

    def control(self, batch_id: str, *, quiet_seconds: float = 0.2) -> None:
        self.rung.append(("control", batch_id, quiet_seconds))

    def stop(self, batch_id: str) -> None:
        self.rung.append(("stop", batch_id, 0))

    def call(self, pool: str) -> None:
        self.rung.append(("call", pool, 0))


def listening(yard: Yard) -> tuple[Yard, list[tuple[str, str, float]]]:
    bells = Bells()
    return replace(yard, bells=bells), bells.rung


def test_two_ringers_publish_once(yard: Yard) -> None:
    batch_id = validated(yard)

    def ring() -> rings.BatchRing | None:
        return rings.ring_batch(yard, batch_id, quiet_seconds=5)

    with held(yard.store, ring, at_commit_after="UPDATE batch") as first:
        second = doing(ring)
        second.assert_waits(yard.store)
    assert [first.result() is None, second.result() is None] == [False, True]


def test_control_work_is_rung_once_by_two(yard: Yard) -> None:
    batch_id = created(yard)

    def ring() -> list[rings.ControlRing]:
        return rings.ring_control(yard, batch_id, quiet_seconds=5)

    with held(yard.store, ring, at_commit_after="UPDATE job") as first:
        second = doing(ring)
        second.assert_waits(yard.store)
    assert len(first.result()) == 1
    assert second.result() == []


def test_a_batch_is_rung_for_as_many_workers_as_can_start(yard: Yard) -> None:
    batch_id = validated(yard, rows=12)
    for number in range(5):
        machine(yard, f"worker-{number}")
    ring = rings.ring_batch(yard, batch_id)
    assert ring is not None
    assert (ring.pool, ring.times) == ("gpu", 3)
    small = validated(yard, rows=1)
    found = rings.ring_batch(yard, small)
    assert found is not None
    assert found.times == 1


def test_what_was_rung_just_now_is_not_rung_again(yard: Yard) -> None:
    batch_id = validated(yard)
    first = rings.ring_batch(yard, batch_id)
    assert first is not None
    assert rings.ring_batch(yard, batch_id, quiet_seconds=60) is None
    later(yard, 61)
    again = rings.ring_batch(yard, batch_id, quiet_seconds=60)
    assert again is not None
    assert again.ring_no == first.ring_no + 1


def test_nothing_is_rung_for_a_batch_without_work(yard: Yard) -> None:
    leased, stopped, validating = validated(yard), validated(yard), created(yard)
    machine(yard).claim()
    cancel(yard, stopped)
    assert [rings.ring_batch(yard, batch_id) for batch_id in (leased, stopped, validating)] == [None] * 3


def test_a_lost_bell_is_rung_again_after_five_seconds_while_a_worker_is_free(yard: Yard) -> None:
    batch_id = validated(yard)
    machine(yard)
    rings.ring_batch(yard, batch_id)  # and the broker was flushed
    ringing, rung = listening(yard)
    for seconds, times in ((1, 0), (3, 0), (2, 1), (1, 0), (5, 1)):
        later(yard, seconds)
        rung.clear()
        requeue.run_once(ringing, 100)
        published = [rings.ring_batch(yard, name, quiet_seconds=quiet) for _, name, quiet in rung]
        assert sum(found is not None for found in published) == times


def test_a_worker_is_free_by_the_grace_of_its_pool(yard: Yard) -> None:
    """It beats once a minute, and is rung for all the same after its service's grace of fifty seconds."""
    batch_id = validated(yard, rows=12)
    set_rungs(yard, renew_seconds=60.0, grace_seconds=200.0, toleration_seconds=900.0)
    for number in range(3):
        machine(yard, f"worker-{number}")
    later(yard, 55)
    ring = rings.ring_batch(yard, batch_id)
    assert ring is not None
    assert ring.times == 3
    ringing, rung = listening(yard)
    requeue.run_once(ringing, 100)
    assert rung == [("batch", batch_id, rings.AGAIN_SECONDS)]


def test_a_lost_bell_is_rung_again_after_a_minute_while_nobody_is_free(yard: Yard) -> None:
    busy = validated(yard, rows=1)
    one = machine(yard)
    (grant,) = one.claim(hint=busy).grants
    waiting = validated(yard)
    rings.ring_batch(yard, waiting)
    ringing, rung = listening(yard)
    for seconds, times in ((30, 0), (25, 0), (10, 1), (30, 0), (31, 1)):
        later(yard, seconds)
        one.beat(grant.lease_id)
        rung.clear()
        requeue.run_once(ringing, 100)
        published = [rings.ring_batch(yard, name, quiet_seconds=quiet) for _, name, quiet in rung]
        assert sum(found is not None for found in published) == times


def test_lost_bells_of_control_work_are_rung_again(yard: Yard) -> None:
    batch_id = created(yard)
    rings.ring_control(yard, batch_id)
    ringing, rung = listening(yard)
    assert requeue.run_once(ringing, 100)["control"] == 0
    later(yard, 6)
    assert requeue.run_once(ringing, 100)["control"] == 1
    assert rung == [("control", batch_id, 5)]


def test_a_new_batch_and_its_shards_are_noted_as_rung_by_the_transactions_that_make_them(yard: Yard) -> None:
    bells = Bells()
    ringing = replace(yard, bells=bells)
    one, two = machine(yard, "one"), machine(yard, "two")
    assert one.claim().no == two.claim().no == "nothing"
    batch_id = created(ringing, rows=12)
    job = control_job(yard, batch_id, ControlVerb.VALIDATE)
    assert job is not None
    assert bells.published == [ControlRing(job.id or 0, batch_id, 1)]
    assert rings.ring_control(yard, batch_id, quiet_seconds=60) == []
    Controller(ringing).works()
    assert bells.published[1:] == [BatchRing("gpu", batch_id, ring_no=1, times=2)]
    assert rings.ring_batch(yard, batch_id, quiet_seconds=60) is None
    assert bells.rung == []


def test_where_nobody_publishes_nothing_is_noted_as_rung(yard: Yard) -> None:
    batch_id = created(yard)
    assert len(rings.ring_control(yard, batch_id)) == 1
    Controller(yard).works()
    assert rings.ring_batch(yard, batch_id) is not None


def test_a_pool_is_not_rung_for_a_batch_that_failed(yard: Yard) -> None:
    bells = Bells()
    batch_id = created(replace(yard, bells=bells), content=b"{")
    bells.published.clear()
    Controller(replace(yard, bells=bells)).works()
    assert (bells.published, bells.rung) == ([], [("control", batch_id, 0.2)])  # whoever waits for its end is told


def test_a_message_says_which_job_and_which_ring(yard: Yard) -> None:
    batch_id = created(yard)
    (ring,) = rings.ring_control(yard, batch_id)
    later(yard, 1)
    (again,) = rings.ring_control(yard, batch_id)
    job = control_job(yard, batch_id, ControlVerb.VALIDATE)
    assert job is not None
    assert (ring.job_id, again.ring_no) == (job.id, ring.ring_no + 1)


def test_each_end_rings_for_what_it_made_possible(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    ringing, rung = listening(yard)
    one = machine(ringing)
    first, second = one.claim(want=8).grants
    one.release(first.lease_id)
    assert rung.pop() == ("batch", batch_id, 0.2)
    (first,) = one.claim().grants
    one.finish(batch_id, first)
    assert rung == []
    one.finish(batch_id, second)
    assert rung.pop() == ("control", batch_id, 0.2)
    stopped = validated(yard)
    cancel(ringing, stopped)
    assert rung == [("stop", stopped, 0), ("control", stopped, 0.2)]
