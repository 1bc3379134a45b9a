"""A worker that returns what it claims unstarted is granted nothing for a while; it costs the jobs nothing."""

from app.domain.eligibility import No
from app.services import commands, worker_views
from app.services.context import Yard
from tests.yards import USER, Machine, assert_sound, later, machine, shards, validated


def returns_unstarted(one: Machine, number: int) -> None:
    answer = one.claim(request=f"claim-{number:04}")
    assert answer.grants, f"claim {number} was answered {answer.no}"
    one.release(*[grant.lease_id for grant in answer.grants], unstarted=True)


def test_after_three_unstarted_claims_nothing_is_granted_and_the_wait_grows(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    for number in range(3):
        returns_unstarted(one, number)
    waited = 0
    for number in range(3, 6):
        seconds = 0
        while (answer := one.claim(request=f"asks-{number}-{seconds}")).no is not None:
            assert answer.no is No.PHASE, "a word that an older worker knows"
            assert not one.beat().work
            assert worker_views.show(yard, USER, one.id).no_lease == "unstarted"
            later(yard, 1)
            seconds += 1
        assert seconds >= max(4, 1.5 * waited), "time goes on by itself, too, while a machine is slow"
        waited = seconds
        one.release(*[grant.lease_id for grant in answer.grants], unstarted=True)
    assert {(job.state, job.attempts, job.losses) for job in shards(yard, batch_id)} == {("queued", 0, 0)}
    assert_sound(yard)


def test_a_worker_that_forgets_its_claims_is_held_back_too(yard: Yard) -> None:
    """An older worker whose thread does not start lists no lease: each is released as a ghost."""
    validated(yard, rows=64)
    one = machine(yard)
    for number in range(3):
        assert one.claim(request=f"claim-{number:04}").grants
    for _ in range(4):
        later(yard, 1)
        one.beat()
    assert one.claim(request="claim-0003").no is No.PHASE


def test_what_a_worker_gives_back_for_another_reason_holds_nothing_back(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    for number in range(6):
        answer = one.claim(request=f"claim-{number:04}")
        leases = [grant.lease_id for grant in answer.grants]
        assert leases
        one.beat(*leases, unstarted=leases)
        one.release(*leases)


def test_a_started_claim_a_restart_and_a_reset_end_the_wait(yard: Yard) -> None:
    validated(yard, rows=64)
    one = machine(yard)
    for number in range(2):
        returns_unstarted(one, number)
    (started,) = [grant.lease_id for grant in one.claim(request="claim-0002", want=4).grants]
    one.beat(started)
    one.release(started)
    returns_unstarted(one, 3)

    for number in range(4, 6):
        returns_unstarted(one, number)
    assert one.claim(request="claim-0007").no is No.PHASE
    commands.reset(yard, USER, one.id)
    returns_unstarted(one, 8)
    for number in range(9, 11):
        returns_unstarted(one, number)
    assert one.claim(request="claim-0011").no is No.PHASE
    again = one.restarted()
    again.hello()
    assert again.claim(request="claim-0012").grants
