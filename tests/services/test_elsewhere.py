"""Which shard a worker is given when it had one of them before (DESIGN 7; `app.domain.jobs.goes_elsewhere`)."""

from app.services.context import Yard
from tests.losses import only
from tests.yards import machine, validated


def test_a_worker_that_was_started_again_goes_on_with_its_own_shard(yard: Yard) -> None:
    """The others have their hands full, and it has nothing: its shard would wait for one of them."""
    validated(yard, rows=8)
    one = machine(yard)
    assert only(one, want=1).number == 0
    assert only(one.dies(), want=1).number == 0


def test_a_shard_that_its_worker_lost_twice_goes_to_another_first(yard: Yard) -> None:
    validated(yard, rows=12)
    one = machine(yard)
    for _ in range(2):
        assert only(one, want=1).number == 0
        one = one.dies()
    assert only(one, want=1).number == 1, "a shard that nobody has lost"
    assert only(machine(yard, "two"), want=1).number == 0


def test_a_shard_that_a_worker_could_not_run_goes_to_another_first(yard: Yard) -> None:
    validated(yard, rows=12)
    one = machine(yard)
    failed = only(one, want=1)
    one.fail(failed.lease_id)
    assert only(one, want=1).number == 1
    assert only(machine(yard, "two"), want=1).number == 0


def test_there_being_no_other_it_is_given_to_the_same_one_again(yard: Yard) -> None:
    validated(yard, rows=4)
    one = machine(yard)
    one.fail(only(one, want=1).lease_id)
    assert only(one, want=1).number == 0
