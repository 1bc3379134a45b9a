"""PROTOCOL 5: cancel and the end of the window stop and do not revoke, in every state there is."""

from collections.abc import Callable

import pytest

from app.db import stops as stops_sql
from app.domain.batches import Outcome
from app.domain.errors import Conflict, NotFound
from app.services import control, presence, stops
from app.services.context import Caller, Yard
from app.sweeps import batch_expiry, lease_expiry
from tests.interleaving import Crash, crashing
from tests.yards import (
    Controller,
    assert_sound,
    batch,
    cancel,
    control_job,
    created,
    events,
    later,
    machine,
    result_files,
    shards,
    states,
    validated,
)

HOURS = 3600


def expire_window(yard: Yard, _batch_id: str) -> None:
    later(yard, 25 * HOURS, listening=False)
    presence.tick(yard)
    assert batch_expiry.run_once(yard, 100)["expired"] == 1


STOPS: dict[str, Callable[[Yard, str], None]] = {"cancelled": cancel, "expired": expire_window}
stopped = pytest.mark.parametrize("outcome", sorted(STOPS))


@stopped
def test_while_validation_is_queued(yard: Yard, outcome: str) -> None:
    batch_id = created(yard)
    STOPS[outcome](yard, batch_id)
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)
    Controller(yard).works()
    assert_ended_before_it_began(yard, batch_id, outcome)


@stopped
def test_while_validation_runs(yard: Yard, outcome: str) -> None:
    batch_id = created(yard)
    one = Controller(yard)
    grant = one.claims()
    assert grant is not None
    STOPS[outcome](yard, batch_id)
    assert states(yard, grant.lease_id) == ["stopping"]
    assert batch(yard, batch_id).state == "validating"
    assert_sound(yard)
    control.perform(yard, grant)
    assert shards(yard, batch_id) == []
    one.works()
    assert_ended_before_it_began(yard, batch_id, outcome)


@stopped
def test_while_a_validation_that_never_comes_back_runs(yard: Yard, outcome: str) -> None:
    batch_id = created(yard)
    one = Controller(yard)
    grant = one.claims()
    assert grant is not None
    STOPS[outcome](yard, batch_id)
    later(yard, 31)
    lease_expiry.run_once(yard, 100)
    assert states(yard, grant.lease_id) == ["revoked"]
    control.perform(yard, grant)  # it comes back after all
    Controller(yard, "control-2").works()
    assert_ended_before_it_began(yard, batch_id, outcome)


def assert_ended_before_it_began(yard: Yard, batch_id: str, outcome: str) -> None:
    found = batch(yard, batch_id)
    assert found.state == outcome
    assert (found.total, found.completed, found.failed) == (0, 0, 0)
    assert (found.output_file_id, found.error_file_id) == (None, None)
    assert_sound(yard)


@stopped
def test_before_anybody_started(yard: Yard, outcome: str) -> None:
    """The window may end with no worker at all."""
    batch_id = validated(yard, rows=6)
    STOPS[outcome](yard, batch_id)
    assert [job.state for job in shards(yard, batch_id)] == ["cancelled", "cancelled"]
    Controller(yard).works()
    found = batch(yard, batch_id)
    assert (found.state, found.total, found.completed, found.failed) == (outcome, 6, 0, 0)
    output, errors = result_files(yard, batch_id)
    assert output == []
    assert [line["error"]["code"] for line in errors] == [f"batch_{outcome}"] * 6
    assert_sound(yard)


@stopped
def test_while_a_worker_runs_its_last_hand_in_is_taken(yard: Yard, outcome: str) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    (grant,) = one.claim().grants
    STOPS[outcome](yard, batch_id)
    assert states(yard, grant.lease_id) == ["stopping"]
    assert batch(yard, batch_id).state == "in_progress"
    assert_sound(yard)
    answer = one.hand_in(batch_id, {grant.lease_id: [0, 1]}, ends=[grant.lease_id])
    assert (answer.parts, answer.ends, answer.stop) == (
        {grant.lease_id: "stored"},
        {grant.lease_id: "incomplete"},
        [grant.lease_id],
    )
    one.release(grant.lease_id)
    assert batch(yard, batch_id).state == "finalizing"
    Controller(yard).works()
    found = batch(yard, batch_id)
    assert (found.state, found.completed, found.failed, found.total) == (outcome, 2, 0, 8)
    output, errors = result_files(yard, batch_id)
    assert [line["custom_id"] for line in output] == ["row-0", "row-1"]
    assert [line["custom_id"] for line in errors] == [f"row-{n}" for n in range(2, 8)]
    assert_sound(yard)


@stopped
def test_a_worker_that_does_not_stop_is_revoked_after_the_stop_grace(yard: Yard, outcome: str) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    STOPS[outcome](yard, batch_id)
    later(yard, 29)
    assert lease_expiry.run_once(yard, 100) == {"ended": 0}
    assert one.hand_in(batch_id, {grant.lease_id: [0]}).parts == {grant.lease_id: "stored"}
    later(yard, 2)
    assert lease_expiry.run_once(yard, 100) == {"ended": 1}
    assert states(yard, grant.lease_id) == ["revoked"]
    assert one.hand_in(batch_id, {grant.lease_id: [1]}).parts == {grant.lease_id: "stale"}
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "stale"}
    (job,) = shards(yard, batch_id)
    assert (job.state, job.losses, job.attempts) == ("cancelled", 0, 0)
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)


def test_a_stopping_lease_is_not_renewed(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    cancel(yard, batch_id)
    for _ in range(4):
        later(yard, 9)
        one.beat(grant.lease_id)
    assert lease_expiry.run_once(yard, 100) == {"ended": 1}


def test_a_failure_while_stopping_does_not_queue_the_shard_again(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    cancel(yard, batch_id)
    one.fail(grant.lease_id)
    assert [job.state for job in shards(yard, batch_id)] == ["cancelled"]
    assert batch(yard, batch_id).state == "finalizing"


def test_a_stop_that_crashed_at_any_step_is_finished_by_the_sweep(yard: Yard) -> None:
    for step in range(1, 60, 2):
        batch_id = validated(yard, rows=8)
        one = machine(yard, f"worker-{step}")
        (grant,) = one.claim().grants
        try:
            with crashing(yard.store, at_statement=step):
                cancel(yard, batch_id)
        except Crash:
            assert_sound(yard)
        else:
            break
        batch_expiry.run_once(yard, 100)
        if batch(yard, batch_id).outcome is None:
            assert states(yard, grant.lease_id) == ["held"]
            cancel(yard, batch_id)
        assert states(yard, grant.lease_id) == ["stopping"]
        assert [job.state for job in shards(yard, batch_id)] == ["leased", "cancelled"]
        one.release(grant.lease_id)
        assert_sound(yard)
    assert step > 10


def test_a_second_cancel_changes_nothing_and_a_late_one_is_refused(yard: Yard) -> None:
    batch_id = validated(yard)
    cancel(yard, batch_id)
    cancel(yard, batch_id)
    Controller(yard).works()
    cancel(yard, batch_id)
    assert events(yard, batch_id).count("batch.cancelling") == 1
    done = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(done, grant)
    with pytest.raises(Conflict, match="'finalizing'"):
        cancel(yard, done)
    Controller(yard).works()
    with pytest.raises(Conflict, match="'completed'"):
        cancel(yard, done)
    assert batch(yard, done).state == "completed"


def test_the_first_decision_stands(yard: Yard) -> None:
    batch_id = validated(yard)
    machine(yard).claim()
    cancel(yard, batch_id)
    later(yard, 25 * HOURS, listening=False)
    assert batch_expiry.run_once(yard, 100)["expired"] == 0
    assert batch(yard, batch_id).outcome == "cancelled"


def test_a_cancel_that_comes_after_the_end_of_the_window_is_refused(yard: Yard) -> None:
    batch_id = validated(yard)
    machine(yard).claim()
    later(yard, 25 * HOURS, listening=False)
    assert batch_expiry.run_once(yard, 100)["expired"] == 1
    with pytest.raises(Conflict, match="'finalizing'"):
        cancel(yard, batch_id)
    assert batch(yard, batch_id).outcome == "expired"


def test_a_sweep_that_saw_the_window_end_before_a_cancel_decides_nothing_any_more(yard: Yard) -> None:
    """The sweep chooses its batches in a transaction of its own: the guard is in the one that decides."""
    batch_id = validated(yard)
    machine(yard).claim()
    cancel(yard, batch_id)
    with yard.store.begin() as session:
        assert not stops_sql.set_outcome_if_open(session, batch_id, Outcome.EXPIRED, yard.store.now(session))
    assert batch(yard, batch_id).outcome == "cancelled"


def test_another_orgs_batch_is_not_there(yard: Yard) -> None:
    batch_id = validated(yard)
    with pytest.raises(NotFound):
        stops.cancel(yard, Caller("org_2", None, "x", frozenset({"submit"})), batch_id)
    assert batch(yard, batch_id).outcome is None


def test_spreading_a_stop_again_leaves_the_finalizer_alone(yard: Yard) -> None:
    batch_id = validated(yard)
    cancel(yard, batch_id)
    grant = Controller(yard).claims()
    assert grant is not None
    stops.spread(yard, batch_id)
    assert states(yard, grant.lease_id) == ["held"]
    control.perform(yard, grant)
    assert batch(yard, batch_id).state == "cancelled"
    assert control_job(yard, batch_id, grant.verb) is not None
