"""A worker's name: its user's, else that of a single-worker token, else its machine's (TK-02).

An operator's command by a name: whose worker it is about.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.db.tables import Org, Pool, Worker
from app.domain.errors import BadRequest, Forbidden, NotFound
from app.services import commands, leases, worker_views
from app.services.context import Caller, Yard
from tests.yards import USER, Machine, batch, machine, validated, worker


@pytest.fixture
def alone(yard: Yard) -> Machine:
    """A machine whose key is for the worker `rack-7` alone."""
    anyone = Machine(yard, "box-1")
    anyone.caller = replace(anyone.caller, name="rack-7", single_worker=True)
    return anyone


def test_a_worker_that_nobody_named_takes_the_name_of_its_single_worker_token(alone: Machine) -> None:
    assert alone.hello(named=False).name == "rack-7"


def test_a_name_that_is_not_its_single_worker_tokens_is_refused(alone: Machine) -> None:
    with pytest.raises(Forbidden, match="rack-7"):
        alone.hello(named=True)


def test_a_single_worker_token_speaks_for_no_other_worker_of_its_org(yard: Yard, alone: Machine) -> None:
    batch_id = validated(yard)
    other = machine(yard, "two")
    (grant,) = other.claim().grants
    input_file = batch(yard, batch_id).input_file_id
    assert leases.may_read(yard, other.caller, input_file)
    assert not leases.may_read(yard, alone.caller, input_file)
    other.caller = alone.caller
    for call in (
        other.claim,
        lambda: other.beat(grant.lease_id),
        lambda: other.hand_in(batch_id, {grant.lease_id: [0]}),
        lambda: other.release(grant.lease_id),
        lambda: other.fail(grant.lease_id),
        other.bye,
    ):
        with pytest.raises(NotFound):
            call()


def test_a_single_worker_token_reads_what_its_worker_holds(yard: Yard, alone: Machine) -> None:
    """PH-06."""
    batch_id = validated(yard)
    alone.hello(named=False)
    alone.beat()
    input_file = batch(yard, batch_id).input_file_id
    assert not leases.may_read(yard, alone.caller, input_file)
    (grant,) = alone.claim().grants
    assert leases.may_read(yard, alone.caller, input_file)
    alone.release(grant.lease_id)
    assert not leases.may_read(yard, alone.caller, input_file), "nor when it holds nothing of it any more"


def of_org(yard: Yard, org: str, name: str) -> str:
    """A worker of that name in an org; gives its id, which sorts before those of real workers."""
    with yard.store.begin() as session:
        now = yard.store.now(session)
        if session.get(Org, org) is None:
            session.add(Org(id=org, name=f"{org}-lab", created_at=now))
            session.add(Pool(name=f"pool-{org.removeprefix('org_')}", org_id=org, created_at=now))
            session.flush()
        made = Worker(
            id=f"wrk_00{org}{name}"[:40],
            org_id=org,
            name=name,
            install_id="i",
            boot_id="b",
            pool="gpu",
            created_at=now,
            hello_at=now,
            last_seen_at=now,
        )
        session.add(made)
        return made.id


LOOK_UPS: dict[str, Callable[[Yard, Caller, str], str]] = {
    "show": lambda yard, caller, name: worker_views.show(yard, caller, name).id,
    "drain": commands.drain,
    "reset": commands.reset,
}
each_look_up = pytest.mark.parametrize("look_up", LOOK_UPS.values(), ids=LOOK_UPS)


@each_look_up
def test_a_name_means_the_operators_own_worker_before_anybody_elses(
    yard: Yard, look_up: Callable[[Yard, Caller, str], str]
) -> None:
    theirs = of_org(yard, "org_2", "rack-1"), of_org(yard, "org_3", "rack-1")
    own = machine(yard, "rack-1")
    assert look_up(yard, USER, "rack-1") == own.id
    assert {worker(yard, each).command_at for each in theirs} == {None}
    assert look_up(yard, USER, theirs[0]) == theirs[0], "an id means its worker, whoever has the name"


@each_look_up
def test_a_name_that_several_other_orgs_have_is_refused_with_the_ids(
    yard: Yard, look_up: Callable[[Yard, Caller, str], str]
) -> None:
    first = of_org(yard, "org_2", "rack-1")
    assert look_up(yard, USER, "rack-1") == first, "it is the only one of that name"
    second = of_org(yard, "org_3", "rack-1")
    before = worker(yard, first), worker(yard, second)
    with pytest.raises(BadRequest) as refused:
        look_up(yard, USER, "rack-1")
    assert refused.value.code == "ambiguous_name"
    assert f"org_2-lab/rack-1 is {first}, org_3-lab/rack-1 is {second}" in refused.value.message
    assert (worker(yard, first), worker(yard, second)) == before
    assert look_up(yard, USER, second) == second


@each_look_up
def test_nobody_draws_a_command_by_naming_a_worker_like_anothers_id(
    yard: Yard, look_up: Callable[[Yard, Caller, str], str]
) -> None:
    own = machine(yard, "rack-1")
    thief = of_org(yard, "org_2", own.id)
    assert look_up(yard, USER, own.id) == own.id
    assert worker(yard, thief).command_at is None
    stranger = Caller("org_2", "tok", "admin", frozenset({"admin"}))
    assert look_up(yard, stranger, own.id) == thief, "in its own org that is a name like any other"
    assert worker(yard, own.id).name == "rack-1"
    with pytest.raises(NotFound):
        look_up(yard, stranger, "rack-1")
