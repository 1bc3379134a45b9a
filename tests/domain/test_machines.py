"""The machines' tables, all states against all states: what may follow what, and nothing else."""

from itertools import product

import pytest

from app.domain import batches, jobs, leases, workers
from app.domain.batches import BatchState, Outcome, inner_state, settle, wire_status
from app.domain.jobs import JobState, LeaseEnd, Tally, after_lease
from app.domain.leases import LeaseState, LeaseVerdict, verdict
from app.domain.workers import Phase, WorkerState, project

ALLOWED = {
    BatchState: (
        batches.TRANSITIONS,
        {
            ("validating", "validated"),
            ("validating", "failed"),
            ("validating", "finalizing"),
            ("validated", "in_progress"),
            ("validated", "finalizing"),
            ("in_progress", "validated"),
            ("in_progress", "finalizing"),
            ("finalizing", "completed"),
            ("finalizing", "cancelled"),
            ("finalizing", "expired"),
            ("finalizing", "failed"),
        },
    ),
    JobState: (
        jobs.TRANSITIONS,
        {
            ("queued", "leased"),
            ("queued", "cancelled"),
            ("leased", "queued"),
            ("leased", "done"),
            ("leased", "failed"),
            ("leased", "cancelled"),
        },
    ),
    LeaseState: (
        leases.TRANSITIONS,
        {
            ("held", "stopping"),
            ("held", "reported"),
            ("held", "released"),
            ("held", "expired"),
            ("stopping", "reported"),
            ("stopping", "released"),
            ("stopping", "revoked"),
        },
    ),
    WorkerState: (
        workers.TRANSITIONS,
        {
            ("joining", "setting_up"),
            ("joining", "active"),
            ("joining", "draining"),
            ("joining", "gone"),
            ("setting_up", "active"),
            ("setting_up", "draining"),
            ("setting_up", "gone"),
            ("active", "setting_up"),
            ("active", "draining"),
            ("active", "gone"),
            ("draining", "gone"),
            ("draining", "joining"),
            ("gone", "joining"),
        },
    ),
}


@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.__name__)
def test_all_states_against_all_states(kind: type) -> None:
    """WS-05."""
    table, allowed = ALLOWED[kind]
    assert set(table) == set(kind)
    for before, after in product(kind, kind):
        assert (after in table[before]) == ((before.value, after.value) in allowed), f"{before} -> {after}"


@pytest.mark.parametrize(("end", "stops"), [*product(LeaseEnd, [False, True])])
def test_what_the_end_of_a_lease_costs_and_makes_of_its_job(end: LeaseEnd, stops: bool) -> None:
    found = after_lease(end, Tally(1, 1), batch_stops=stops)
    assert found.tally == Tally(1 + (end is LeaseEnd.FAILED), 1 + (end is LeaseEnd.LOST))
    expected = JobState.DONE if end is LeaseEnd.DONE else JobState.CANCELLED if stops else JobState.QUEUED
    assert found.state is expected


@pytest.mark.parametrize(
    ("end", "before", "state"),
    [
        (LeaseEnd.FAILED, Tally(1, 0), "queued"),
        (LeaseEnd.FAILED, Tally(2, 0), "failed"),
        (LeaseEnd.LOST, Tally(0, 3), "queued"),
        (LeaseEnd.LOST, Tally(0, 4), "failed"),
        (LeaseEnd.LOST, Tally(2, 3), "queued"),
        (LeaseEnd.RELEASED, Tally(2, 4), "queued"),
        (LeaseEnd.GHOST, Tally(2, 4), "queued"),
    ],
)
def test_the_bounds_of_attempts_and_losses(end: LeaseEnd, before: Tally, state: str) -> None:
    assert after_lease(end, before, batch_stops=False).state == state
    assert after_lease(end, before, batch_stops=False, max_attempts=None, max_losses=None).state == "queued"


@pytest.mark.parametrize(("state", "outcome"), [*product(BatchState, [None, *Outcome])])
def test_settling_never_leaves_the_table(state: BatchState, outcome: Outcome | None) -> None:
    for open_jobs, live in product((0, 1), (0, 1)):
        after, then = settle(state, outcome, open_jobs=open_jobs, live=live)
        assert after is state or after in batches.TRANSITIONS[state]
        assert outcome is None or then is outcome
        if state in batches.STOPPABLE:
            assert (after is BatchState.FINALIZING) == (open_jobs == 0 and live == 0)
        else:
            assert after is state


@pytest.mark.parametrize(("state", "outcome"), [*product(BatchState, [None, *Outcome])])
def test_the_wire_has_eight_words(state: BatchState, outcome: Outcome | None) -> None:
    words = ["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
    assert wire_status(state, outcome) in words
    stops = outcome in {Outcome.CANCELLED, Outcome.EXPIRED, Outcome.FAILED} and state in batches.STOPPABLE
    assert inner_state(state, outcome) == ("stopping" if stops else state.value)


def test_what_a_beat_answers_for_each_state_of_a_lease() -> None:
    renewed, stop = {LeaseState.HELD}, {LeaseState.STOPPING}
    for state in [*LeaseState, None]:
        expected = (
            LeaseVerdict.RENEWED if state in renewed else LeaseVerdict.STOP if state in stop else LeaseVerdict.STALE
        )
        assert verdict(state) is expected


@pytest.mark.parametrize(("state", "phase"), [*product(WorkerState, [None, *Phase])])
def test_a_beat_never_widens_what_the_table_allows(state: WorkerState, phase: Phase | None) -> None:
    after = project(state, phase)
    assert after is state or after in workers.TRANSITIONS[state]
    assert after is not WorkerState.GONE or state is WorkerState.GONE
    assert project(after, phase) is after
    if state in {WorkerState.DRAINING, WorkerState.GONE}:
        assert after is state
