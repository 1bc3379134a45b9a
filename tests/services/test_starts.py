"""PROTOCOL 3: which of two processes of one install was started later, whatever order their hellos are heard in."""

import pytest

from app.domain.errors import Conflict
from app.services.context import Yard
from tests.yards import Machine, events, later, machine, states, validated, worker


def test_a_hello_of_a_dead_start_that_is_heard_late_ends_nothing(yard: Yard) -> None:
    """An API that was frozen finds two hellos on its sockets: of a process that died since, and of the next one."""
    validated(yard)
    dead = Machine(yard)
    alive = dead.restarted()
    alive.hello(starts=2)
    alive.beat()
    (grant,) = alive.claim().grants
    with pytest.raises(Conflict, match="superseded"):
        dead.hello(starts=1)
    assert states(yard, grant.lease_id) == ["held"]
    assert alive.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}
    assert events(yard, alive.id).count("worker.hello") == 1


@pytest.mark.parametrize("starts", [2, 3, 0])
def test_the_next_start_takes_its_place_and_so_does_one_that_does_not_count(yard: Yard, starts: int) -> None:
    one = Machine(yard)
    one.hello(starts=2)
    again = one.restarted()
    again.hello(starts=starts)
    assert worker(yard, again.id).boot_id == again.boot_id


@pytest.mark.parametrize("leaves", [True, False], ids=["it said goodbye", "it is silent for longer than its grace"])
def test_a_count_that_was_put_back_keeps_nobody_out_for_good(yard: Yard, *, leaves: bool) -> None:
    """A machine is put back as it was a week ago: its state directory has counted fewer starts."""
    one = Machine(yard)
    one.hello(starts=9)
    if leaves:
        one.bye()
    else:
        later(yard, 51)
    again = one.restarted()
    again.hello(starts=3)
    assert worker(yard, again.id).starts == 3
    with pytest.raises(Conflict, match="superseded"):
        one.beat()


def test_another_install_of_a_free_name_is_not_measured_by_the_count_of_the_one_before(yard: Yard) -> None:
    one = machine(yard)
    one.bye()
    other = Machine(yard, install_id="another")
    other.hello(starts=1)
    assert worker(yard, other.id).install_id == "another"
