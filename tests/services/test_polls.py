"""The bell by HTTP as the database sees it: what a poll notes, what it says, and that it gives and renews nothing."""

from datetime import timedelta

import pytest
from sqlalchemy import event as sqlalchemy_event

from app.domain.errors import Refusal
from app.domain.polls import Told
from app.domain.workers import Phase, WorkerState
from app.schemas.polls import Poll, PollAnswer
from app.services import commands, polls, stops
from app.services.context import Caller, Yard
from tests.yards import USER, Machine, events, later, lease, machine, validated, worker


def a_poll(one: Machine, *, phase: Phase | None = Phase.READY, free: int = 1, cursor: str | None = None) -> Poll:
    return Poll(worker_id=one.id, boot_id=one.boot_id, phase=phase, free=free, cursor=cursor)


def polled(one: Machine, told: Told | None = None, **more: object) -> PollAnswer | None:
    poll = a_poll(one, **more)  # type: ignore[arg-type]
    polls.note(one.yard, one.caller, poll)
    return polls.look(one.yard, one.caller, poll, told or Told())


def kinds(answer: PollAnswer | None) -> list[str]:
    return [message.kind for message in answer.messages] if answer is not None else []


def test_a_poll_rings_and_grants_nothing(yard: Yard) -> None:
    one = machine(yard)
    batch_id = validated(yard, 8)
    answer = polled(one)

    assert answer is not None
    assert [(m.kind, m.batch_id) for m in answer.messages] == [("work", batch_id)]
    assert kinds(polled(one, Told.read(answer.cursor))) == []
    assert len(one.claim(want=8).grants) == 2


def test_a_poll_counts_as_heard_of_and_renews_no_lease(yard: Yard) -> None:
    one = machine(yard)
    validated(yard, 8)
    [grant] = one.claim().grants
    before = lease(yard, grant.lease_id).expires_at
    later(yard, 30)
    seen = worker(yard, one.id).last_seen_at
    polled(one)

    assert worker(yard, one.id).last_seen_at - seen >= timedelta(seconds=30)
    assert lease(yard, grant.lease_id).expires_at == before


def test_polls_of_a_worker_that_was_just_heard_of_write_nothing(yard: Yard) -> None:
    one = machine(yard)
    polled(one)
    statements: list[str] = []
    sqlalchemy_event.listen(yard.store.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    polled(one)
    assert statements
    assert not [text for text in statements if text.lstrip().upper().startswith(("UPDATE", "INSERT", "DELETE"))]


def test_a_worker_that_sends_no_phase_is_active_while_it_is_heard_of(yard: Yard) -> None:
    """As the seeds' old worker: no phase is no reason to refuse it (A-19), and nobody is widened by it (PH-04)."""
    old = machine(yard, "old")
    old.beat(phase=Phase.SETUP)
    assert worker(yard, old.id).state == WorkerState.SETTING_UP
    validated(yard, 4)

    assert kinds(polled(old, phase=None)) == ["work"]
    assert worker(yard, old.id).state == WorkerState.ACTIVE
    assert old.claim().grants

    old.bye()
    polled(old, phase=None)
    assert worker(yard, old.id).state == WorkerState.GONE


def test_in_set_up_it_is_heard_of_told_commands_and_offered_nothing(yard: Yard) -> None:
    one = machine(yard)
    validated(yard, 4)
    commands.reset(yard, USER, one.id)

    assert kinds(polled(one, phase=Phase.SETUP)) == ["reset_backoff"]
    assert worker(yard, one.id).state == WorkerState.SETTING_UP
    assert one.claim().no == "phase"
    assert kinds(polled(one, phase=Phase.READY)) == ["reset_backoff", "work"]


def test_without_a_free_permit_it_hears_commands_alone(yard: Yard) -> None:
    one = machine(yard)
    validated(yard, 4)
    commands.reset(yard, USER, one.name)
    assert kinds(polled(one, free=0)) == ["reset_backoff"]
    assert kinds(polled(one, free=1)) == ["reset_backoff", "work"]


def test_a_batch_that_stops_is_said_to_who_holds_leases_of_it(yard: Yard) -> None:
    one, other = machine(yard), machine(yard, "two")
    batch_id = validated(yard, 8)
    one.claim()
    stops.cancel(yard, USER, batch_id)
    answer = polled(one)

    assert answer is not None
    assert [(m.kind, m.batch_id) for m in answer.messages] == [("stop", batch_id)]
    assert kinds(polled(other)) == []
    assert polls.whats_new(yard, ["gpu"]).stopping == {one.id: {batch_id}}


def test_polls_of_another_process_of_the_worker_and_of_another_org_are_refused(yard: Yard) -> None:
    one = machine(yard)
    again = one.restarted()
    again.hello()
    with pytest.raises(Refusal) as superseded:
        polled(one)
    assert superseded.value.code == "superseded"
    stranger = Caller("org_2", None, "stranger", frozenset({"worker"}))
    with pytest.raises(Refusal) as unknown:
        polls.note(yard, stranger, a_poll(again))
    assert unknown.value.code == "no_worker"


class TestADrainThatAnAdminAsksFor:
    def test_is_said_by_heartbeat_poll_and_claim_until_the_worker_leaves(self, yard: Yard) -> None:
        one = machine(yard)
        validated(yard, 4)
        assert commands.drain(yard, USER, one.name) == one.id
        assert commands.drain(yard, USER, one.id) == one.id

        assert one.beat().drain
        assert kinds(polled(one)) == ["drain"]
        assert one.claim().no == "draining"
        assert events(yard, one.id).count("worker.drain_requested") == 1
        assert polls.whats_new(yard, []).commands.keys() == {one.id}

    def test_was_meant_for_the_process_before_a_restart(self, yard: Yard) -> None:
        one = machine(yard)
        commands.drain(yard, USER, one.id)
        again = one.restarted()
        again.hello()
        assert not again.beat().drain

    def test_of_a_worker_that_is_gone_changes_nothing(self, yard: Yard) -> None:
        one = machine(yard)
        one.bye()
        commands.drain(yard, USER, one.id)
        assert worker(yard, one.id).drain_requested_at is None

    def test_of_another_org_s_worker_finds_none(self, yard: Yard) -> None:
        one = machine(yard)
        with pytest.raises(Refusal) as refused:
            commands.drain(yard, Caller("org_2", None, "stranger", frozenset({"admin"})), one.id)
        assert refused.value.code == "worker_not_found"


def test_a_reset_is_marked_anew_each_time_it_is_asked_for(yard: Yard) -> None:
    one = machine(yard)
    assert one.beat().reset_backoff is None
    commands.reset(yard, USER, one.id)
    first = one.beat().reset_backoff
    assert first is not None
    assert one.beat().reset_backoff == first
    later(yard, 1)
    commands.reset(yard, USER, one.id)
    assert one.beat().reset_backoff not in {None, first}


def test_one_look_serves_all_who_wait_and_says_how_many_could_start(yard: Yard) -> None:
    validated(yard, 12)
    found = polls.whats_new(yard, ["gpu", "elsewhere"])
    assert found.work.keys() == {"gpu"}
    assert found.work["gpu"].wanted == 3
