"""A worker's name: its user's, else that of a single-worker token, else its machine's (TK-02)."""

from dataclasses import replace

import pytest

from app.domain.errors import Forbidden, NotFound
from app.services import leases
from app.services.context import Yard
from tests.yards import Machine, batch, machine, validated


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
