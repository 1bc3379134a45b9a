"""PROTOCOL 2: a lease that its worker does not know of is a ghost, and no other is taken for one."""

from app.domain.workers import Phase
from app.schemas.workers import Heartbeat
from app.services import heartbeats
from app.services.context import Yard
from app.services.heartbeats import Beat
from tests.yards import assert_sound, batch, grants_of, later, machine, shards, states, validated


def test_a_lease_whose_claim_was_never_answered_is_a_ghost(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (ghost,) = grants_of(one, 1)
    seen = []
    for _ in range(4):
        later(yard, 10)
        one.beat()
        seen.append(str(states(yard, ghost)[0]))
    # The first beat may have begun before the grant; the next two did not.
    assert seen == ["held", "held", "released", "released"]
    (job,) = shards(yard, batch_id)
    assert (job.state, job.attempts, job.losses) == ("queued", 0, 0)
    assert batch(yard, batch_id).state == "validated"
    assert_sound(yard)


def test_beats_that_miss_a_lease_count_only_one_after_the_other(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one, 1)
    one.beat()
    for _ in range(3):
        later(yard, 10)
        one.beat()
        later(yard, 10)
        one.beat(mine)
    assert states(yard, mine) == ["held"]


def test_beats_of_before_a_grant_make_no_ghost_of_it_however_late_and_many_they_come(yard: Yard) -> None:
    """An API that was frozen reads all that its worker sent meanwhile, and the claim as well, in any order."""
    validated(yard)
    one = machine(yard)
    late = [one.beat_now() for _ in range(5)]
    later(yard, 60)
    (mine,) = grants_of(one, 1)
    for beat in late:
        later(yard, 1)
        heartbeats.heartbeat(yard, one.caller, one.id, beat)
    assert states(yard, mine) == ["held"]
    assert one.beat(mine).leases == {mine: "renewed"}


def test_a_claim_that_its_worker_still_waits_for_makes_no_ghost(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    answer = one.claim(request="out")
    (grant,) = answer.grants
    for _ in range(4):
        later(yard, 10)
        one.beat(claiming=["another", "out"])
    assert states(yard, grant.lease_id) == ["held"]
    for _ in range(2):  # it was given up
        later(yard, 10)
        one.beat(claiming=["another"])
    assert states(yard, grant.lease_id) == ["released"]
    assert batch(yard, batch_id).state == "validated"


def test_a_ghost_of_a_worker_that_does_not_say_what_it_heard_is_found_too(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (ghost,) = grants_of(one, 1)
    for _ in range(3):
        later(yard, 10)
        heartbeats.heartbeats(
            yard, [Beat(one.caller, one.id, Heartbeat(boot_id=one.boot_id, phase=Phase.READY, leases=[]))]
        )
    assert states(yard, ghost) == ["released"]
