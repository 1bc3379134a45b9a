"""PROTOCOL 2 and 3: what a beat renews, what is a ghost, who is superseded, and whose name it is."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import event

from app.domain.errors import Refusal
from app.domain.workers import Phase
from app.schemas.segments import Progress
from app.schemas.workers import Heartbeat, HeartbeatAnswer, Hello
from app.services import commands, heartbeats, workers
from app.services.context import Caller, Yard
from app.services.heartbeats import Beat
from tests.interleaving import Crash, crashing
from tests.yards import (
    USER,
    Machine,
    assert_sound,
    batch,
    events,
    expire,
    grants_of,
    later,
    lease,
    machine,
    set_rungs,
    shards,
    states,
    validated,
    worker,
)


def refusal(call: Callable[[], object]) -> str | None:
    with pytest.raises(Refusal) as refused:
        call()
    return refused.value.code


def test_a_beat_renews_exactly_what_it_lists(yard: Yard) -> None:
    validated(yard, rows=12)
    one = machine(yard)
    mine, other, _ = grants_of(one, 3)
    before = lease(yard, other).expires_at
    later(yard, 10)
    assert one.beat(mine).leases == {mine: "renewed"}
    assert lease(yard, mine).expires_at > before
    assert lease(yard, other).expires_at == before


def test_a_beat_says_what_holds_of_each_lease(yard: Yard) -> None:
    validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    (mine,), (yours,) = grants_of(one, 1), grants_of(two, 1)
    assert one.beat(mine, yours, 4711).leases == {mine: "renewed", yours: "stale", 4711: "stale"}


def test_a_lease_with_a_lower_or_higher_number_opens_no_door(yard: Yard) -> None:
    """The fence is equality: a later lease of the same job makes the earlier one no better than any other."""
    batch_id = validated(yard)
    one, two = machine(yard, "one"), machine(yard, "two")
    (old,) = grants_of(one, 1)
    one.release(old)
    (new,) = grants_of(two, 1)
    assert one.hand_in(batch_id, {old: [0]}).parts == {old: "stale"}
    assert one.hand_in(batch_id, {new: [0]}).parts == {new: "stale"}
    assert two.hand_in(batch_id, {new: [0]}).parts == {new: "stored"}


def test_an_overdue_lease_that_nobody_expired_is_renewed(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one, 1)
    later(yard, 400)
    assert one.beat(mine).leases == {mine: "renewed"}
    assert expire(yard) == 0


def test_an_expired_lease_is_never_renewed(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one, 1)
    later(yard, 301)
    assert expire(yard) == 1
    assert one.beat(mine).leases == {mine: "stale"}
    assert shards(yard, batch_of(yard, mine))[0].state == "queued"
    assert_sound(yard)


def batch_of(yard: Yard, lease_id: int) -> str:
    return lease(yard, lease_id).batch_id


def test_a_claim_repeated_by_its_request_gives_the_same_leases(yard: Yard) -> None:
    validated(yard, rows=12)
    one = machine(yard)
    first = one.claim(want=12, request="again")
    assert one.claim(want=12, request="again").grants == first.grants
    one.release(first.grants[0].lease_id)
    assert one.claim(want=12, request="again").grants == first.grants[1:]
    one.release(*(grant.lease_id for grant in first.grants[1:]))
    answer = one.claim(want=12, request="again")
    assert (answer.no, answer.grants) == ("nothing", [])
    assert_sound(yard)


def test_a_request_of_another_worker_is_another_request(yard: Yard) -> None:
    validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    first, second = one.claim(request="same"), two.claim(request="same")
    assert first.grants[0].lease_id != second.grants[0].lease_id


def test_a_superseded_boot_changes_nothing(yard: Yard) -> None:
    batch_id = validated(yard)
    old = machine(yard)
    (mine,) = grants_of(old, 1)
    new = old.restarted()
    new.hello(held=[mine])
    before = (lease(yard, mine), worker(yard, old.id))
    later(yard, 20)
    assert refusal(lambda: old.beat(mine)) == "superseded"
    assert refusal(old.claim) == "superseded"
    assert refusal(old.bye) == "superseded"
    told = Progress(worker_id=old.id, batch_id=batch_id, completed=1, failed=0)
    assert refusal(lambda: workers.progress(yard, old.caller, told, boot_id=old.boot_id)) == "superseded"
    assert old.hand_in(batch_id, {mine: [0]}).parts == {mine: "stored"}  # authorised by the lease, no sign of life
    assert (lease(yard, mine).expires_at, worker(yard, old.id)) == (before[0].expires_at, before[1])


def test_another_orgs_worker_is_not_there(yard: Yard) -> None:
    one = machine(yard)
    one.caller = Caller("org_2", None, "stranger", frozenset({"worker"}))
    assert refusal(one.beat) == "no_worker"
    assert refusal(one.claim) == "no_worker"
    assert refusal(lambda: one.release(1)) == "no_worker"


def test_a_restart_keeps_what_is_held_and_loses_the_rest(yard: Yard) -> None:
    batch_id = validated(yard, rows=12)
    old = machine(yard)
    started, unstarted, kept = grants_of(old, 3)
    old.beat(started, unstarted, kept, unstarted=[unstarted])
    before = lease(yard, kept).expires_at
    later(yard, 40)
    welcome = old.restarted().hello(held=[kept])
    assert welcome.leases == {kept: "renewed"}
    assert lease(yard, kept).expires_at - before >= timedelta(seconds=40), "as it was told"
    assert states(yard, started, unstarted, kept) == ["expired", "expired", "held"]
    assert [job.losses for job in shards(yard, batch_id)] == [1, 0, 0]
    assert [job.state for job in shards(yard, batch_id)] == ["queued", "queued", "leased"]
    assert_sound(yard)


def test_a_lease_that_no_beat_called_unstarted_counts_as_started(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    grants_of(one, 2)
    later(yard, 301)
    assert expire(yard) == 2
    assert [job.losses for job in shards(yard, batch_id)] == [1, 1]


def test_a_shard_with_stored_rows_counts_as_started(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    _, second = grants_of(one, 2)
    one.hand_in(batch_id, {second: [4]})
    later(yard, 301)
    expire(yard)
    assert [job.losses for job in shards(yard, batch_id)] == [1, 1]


def test_a_restarting_worker_sends_its_spool_under_the_old_leases(yard: Yard) -> None:
    batch_id = validated(yard, rows=4)
    old = machine(yard)
    (mine,) = grants_of(old, 1)
    new = old.restarted()
    answer = new.hand_in(batch_id, {mine: [0, 1, 2, 3]}, ends=[mine])
    assert (answer.parts, answer.ends) == ({mine: "stored"}, {mine: "ended"})
    new.hello()
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)


def test_a_hello_said_twice_by_one_boot_is_harmless(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one, 1)
    assert one.hello(held=[mine]).leases == {mine: "renewed"}
    assert states(yard, mine) == ["held"]
    assert_sound(yard)


def test_a_hello_that_comes_late_ends_nothing_that_its_own_process_has_claimed(yard: Yard) -> None:
    """It was sent twice, for nobody answered the first one in time; a fresh process names no leases (A-15)."""
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    (lost,) = grants_of(one, 1)
    again = one.restarted()
    again.hello()
    again.beat()
    (mine,) = grants_of(again, 1)
    commands.drain(yard, USER, again.id)
    set_rungs(yard, renew_seconds=6.0, grace_seconds=20.0, toleration_seconds=60.0)
    later(yard, 1)
    assert again.hello().timing.toleration_seconds == 300.0, "it stops itself by what it was told first"
    assert states(yard, lost, mine) == ["expired", "held"]
    assert sorted(job.losses for job in shards(yard, batch_id)) == [0, 1]
    assert again.beat(mine).drain, "a command is for the process that lives"
    assert_sound(yard)


def test_a_hello_that_broke_off_at_any_step_and_is_said_again_ends_what_the_process_before_held(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (mine,) = grants_of(one, 1)
    again = one.restarted()
    for step in count(1):
        later(yard, 0.01)
        try:
            with crashing(yard.store, at_statement=step):
                again.hello()
        except Crash:
            continue
        break
    assert step > 5, "it never broke off between its two transactions"
    assert states(yard, mine) == ["expired"]
    assert [job.losses for job in shards(yard, batch_id)] == [1]


def test_another_install_waits_out_the_grace(yard: Yard) -> None:
    one = machine(yard)
    other = Machine(yard, "one", install_id="another")
    assert refusal(other.hello) == "name_taken"
    later(yard, 49)
    assert refusal(other.hello) == "name_taken"
    later(yard, 2)
    other.hello()
    assert other.id == one.id
    assert refusal(one.beat) == "superseded"


def test_another_install_takes_over_a_worker_that_said_goodbye(yard: Yard) -> None:
    one = machine(yard)
    one.bye()
    other = Machine(yard, "one", install_id="another")
    other.hello()
    assert other.id == one.id
    assert worker(yard, one.id).state == "active"


def test_no_key_of_a_user_makes_a_control_worker(yard: Yard) -> None:
    stranger = Caller("org_1", "token_1", "key", frozenset({"worker"}))
    hello = Hello.model_validate(
        {"name": "x", "install_id": "i", "boot_id": "b", "pool": "control", "transport": "control"}
    )
    assert refusal(lambda: workers.register(yard, stranger, hello)) == "control_worker"


def test_goodbye_ends_what_is_not_spooled_and_leaves_the_rest_its_time(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    dropped, spooled = grants_of(one, 2)
    one.bye(spooled=[spooled])
    one.bye(spooled=[spooled])
    assert events(yard, one.id).count("worker.gone") == 1
    assert expire(yard) == 1
    assert states(yard, dropped, spooled) == ["expired", "held"]
    assert one.hand_in(batch_id, {spooled: [4, 5, 6, 7]}, ends=[spooled]).ends == {spooled: "ended"}
    assert_sound(yard)


def test_a_spooled_lease_ends_at_its_time(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (spooled,) = grants_of(one, 1)
    one.bye(spooled=[spooled])
    assert expire(yard) == 0
    later(yard, 301)
    assert expire(yard) == 1
    assert states(yard, spooled) == ["expired"]


@pytest.mark.parametrize("phase", ["booting", "setup", "draining", "terminating"])
def test_a_worker_that_is_not_ready_is_given_nothing(yard: Yard, phase: str) -> None:
    validated(yard)
    one = machine(yard)
    assert one.beat(phase=Phase(phase)).work is False
    assert one.claim().no == ("draining" if phase in {"draining", "terminating"} else "phase")


def test_a_pools_own_rungs_reach_its_workers_and_their_leases_with_the_next_hello(yard: Yard) -> None:
    validated(yard, 8)
    one = machine(yard)
    set_rungs(yard, renew_seconds=6.0, grace_seconds=20.0, toleration_seconds=60.0)
    grant = one.claim().grants[0]
    one.beat(grant.lease_id)
    assert seconds_left(yard, grant.lease_id) == pytest.approx(300, abs=1), "it stops itself by the rungs it was told"

    again = one.restarted()
    assert again.hello(held=[grant.lease_id]).timing.toleration_seconds == 60.0
    again.beat(grant.lease_id)
    assert seconds_left(yard, grant.lease_id) == pytest.approx(60, abs=1)
    later(yard, 21)
    assert workers.mark_offline(yard, 10) == 1


def seconds_left(yard: Yard, lease_id: int) -> float:
    found = lease(yard, lease_id)
    return (found.expires_at - found.renewed_at).total_seconds()


def beat_of(one: Machine, *listed: int, boot_id: str | None = None) -> Beat:
    return Beat(one.caller, one.id, Heartbeat(boot_id=boot_id or one.boot_id, phase=Phase.READY, leases=list(listed)))


def test_beats_taken_together_are_each_answered_for_their_own_leases(yard: Yard) -> None:
    validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    (mine,), (yours,) = grants_of(one, 1), grants_of(two, 1)
    later(yard, 10)
    answers = heartbeats.heartbeats(yard, [beat_of(one, mine, yours), beat_of(two, yours, 4711)])
    assert {name: answer.leases for name, answer in answers.items() if isinstance(answer, HeartbeatAnswer)} == {
        one.id: {mine: "renewed", yours: "stale"},
        two.id: {yours: "renewed", 4711: "stale"},
    }
    assert lease(yard, mine).expires_at == lease(yard, yours).expires_at


def test_a_beat_that_is_refused_costs_the_others_nothing(yard: Yard) -> None:
    validated(yard, rows=4)
    one, old = machine(yard, "one"), machine(yard, "old")
    (mine,) = grants_of(one, 1)
    stranger = Beat(one.caller, "wrk_none", Heartbeat(boot_id="b"))
    seen = worker(yard, old.id).last_seen_at
    later(yard, 10)
    answers = heartbeats.heartbeats(yard, [beat_of(old, boot_id="other"), stranger, beat_of(one, mine)])
    assert [getattr(answers[name], "code", None) for name in (old.id, "wrk_none")] == ["superseded", "no_worker"]
    answer = answers[one.id]
    assert isinstance(answer, HeartbeatAnswer)
    assert answer.leases == {mine: "renewed"}
    assert worker(yard, old.id).last_seen_at == seen


def test_beats_taken_together_find_each_its_ghosts_and_its_pools_rungs(yard: Yard) -> None:
    validated(yard, rows=8)
    set_rungs(yard, renew_seconds=5.0, grace_seconds=20.0, toleration_seconds=60.0)
    short = machine(yard, "short")
    set_rungs(yard)
    long = machine(yard, "long")
    (ghost,), (mine,) = grants_of(short, 1), grants_of(long, 1)
    for _ in range(3):
        later(yard, 5)
        heartbeats.heartbeats(yard, [beat_of(short), beat_of(long, mine)])
    assert states(yard, ghost, mine) == ["released", "held"]
    kept = lease(yard, mine)
    assert (kept.expires_at - kept.renewed_at).total_seconds() == 300


def test_however_many_beats_are_two_transactions(yard: Yard) -> None:
    crew = [machine(yard, f"worker-{n}") for n in range(8)]
    commits: list[object] = []
    event.listen(yard.store.engine, "commit", commits.append)
    heartbeats.heartbeats(yard, [beat_of(one) for one in crew])
    assert len(commits) == 2
