"""The ladder of silence at its edges (R-03, LS-03, LS-04, WS-04), and a worker that comes back too late."""

import re

import pytest

from app.domain.workers import Phase
from app.schemas.polls import Poll
from app.schemas.segments import Progress
from app.schemas.workers import PROTOCOL
from app.services import polls, worker_views, workers
from app.services.context import Yard
from app.services.workers import ProtocolMismatch
from app.sweeps import heartbeat_sweeper
from tests.yards import (
    USER,
    Machine,
    assert_sound,
    batch,
    events,
    expire,
    later,
    lease,
    machine,
    shards,
    states,
    validated,
    worker,
)


@pytest.fixture
def standing(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """A yard whose clock stands: time passes by `later` alone, so a busy machine moves no edge."""
    with yard.store.read() as session:
        start = yard.store.now(session)
    monkeypatch.setattr(yard.store, "now", lambda _session: start + yard.store.clock_shift)
    return yard


def seen(yard: Yard, one: Machine) -> tuple[str, int]:
    """Its state, as people see it, and its free slots."""
    shown = worker_views.show(yard, USER, one.id)
    return shown.state, shown.slots["batches"].free


@pytest.mark.parametrize(
    ("silent", "state", "free"),
    [(49, "active", 1), (50, "active", 1), (51, "unreachable", 0), (60, "unreachable", 0), (61, "stale", 0)],
)
def test_what_is_seen_of_a_silent_worker_and_that_one_heartbeat_mends_it(
    standing: Yard, silent: int, state: str, free: int
) -> None:
    one = machine(standing)
    later(standing, silent)
    assert seen(standing, one) == (state, free)
    one.beat()
    assert seen(standing, one) == ("active", 1)


@pytest.mark.parametrize(("silent", "state"), [(51, "offline"), (60, "offline"), (61, "stale")])
def test_one_that_was_noted_as_offline_is_shown_as_stale_in_its_time(standing: Yard, silent: int, state: str) -> None:
    """Of gone, stale, offline and unreachable the first that holds is shown."""
    one = machine(standing)
    later(standing, silent)
    assert heartbeat_sweeper.run_once(standing, 100) == {"offline": 1}
    assert seen(standing, one) == (state, 0)
    one.bye()
    assert seen(standing, one) == ("gone", 0)


@pytest.mark.parametrize(("silent", "offline"), [(49, 0), (50, 0), (51, 1)])
def test_it_is_noted_as_offline_after_its_grace_and_not_before(standing: Yard, silent: int, offline: int) -> None:
    """A-11, WS-06."""
    machine(standing)
    later(standing, silent)
    assert heartbeat_sweeper.run_once(standing, 100) == {"offline": offline}


@pytest.mark.parametrize(
    ("silent", "ended", "state"), [(299, 0, "leased"), (300, 0, "leased"), (300.001, 1, "queued"), (301, 1, "queued")]
)
def test_its_lease_ends_after_its_toleration_and_not_before(
    standing: Yard, silent: float, ended: int, state: str
) -> None:
    """FT-15, B-27."""
    batch_id = validated(standing)
    one = machine(standing)
    (grant,) = one.claim().grants
    one.beat(grant.lease_id)
    later(standing, silent)
    assert expire(standing) == ended
    assert [job.state for job in shards(standing, batch_id)] == [state]


def test_who_is_heard_of_without_renewing_keeps_no_lease(yard: Yard) -> None:
    """A lease ends by its own time, whenever its worker was seen (PROTOCOL 4)."""
    batch_id = validated(yard)
    one = machine(yard)
    one.claim()
    for _ in range(13):
        later(yard, 25)
        polls.note(yard, one.caller, Poll(worker_id=one.id, boot_id=one.boot_id))
    assert seen(yard, one)[0] == "active"
    assert expire(yard) == 1
    assert [job.state for job in shards(yard, batch_id)] == ["queued"]


def test_a_worker_that_said_goodbye_is_mended_by_no_heartbeat(yard: Yard) -> None:
    one = machine(yard)
    one.bye()
    one.beat()  # it was under way
    assert one.claim().grants == []
    assert worker(yard, one.id).state == "gone"


def test_gone_stays_gone_until_a_new_hello(yard: Yard) -> None:
    """WS-02: whatever comes of it late, and however long it is silent."""
    one = machine(yard)
    one.bye()
    one.beat()
    polls.note(yard, one.caller, Poll(worker_id=one.id, boot_id=one.boot_id, phase=Phase.READY))
    workers.progress(
        yard, one.caller, Progress(worker_id=one.id, batch_id="b", completed=0, failed=0), boot_id=one.boot_id
    )
    one.release(1)
    later(yard, 3600)
    assert heartbeat_sweeper.run_once(yard, 100) == {"offline": 0}
    assert (seen(yard, one), worker(yard, one.id).state) == (("gone", 0), "gone")
    one.hello()
    assert seen(yard, one)[0] != "gone"


def test_a_worker_of_another_protocol_is_told_to_upgrade(yard: Yard) -> None:
    with pytest.raises(ProtocolMismatch, match="install the same gpuyard on both sides") as refused:
        Machine(yard).hello(protocol=PROTOCOL + 1)
    assert (refused.value.status, refused.value.code) == (426, "protocol_mismatch")


def test_a_workers_id_is_wrk_and_a_ulid(yard: Yard) -> None:
    """A-14."""
    assert re.fullmatch(r"wrk_[0-7][0-9A-HJKMNP-TV-Z]{25}", machine(yard).id)


def test_a_worker_that_thaws_after_its_lease_is_refused_everything_and_its_shard_ends_once(yard: Yard) -> None:
    """Frozen for six minutes; the next worker has its shard by then, and finishes it only after the thaw."""
    batch_id = validated(yard)
    frozen, next_one = machine(yard, "frozen"), machine(yard, "next")
    (old,) = frozen.claim().grants
    later(yard, 360)
    next_one.beat()
    assert expire(yard) == 1
    (new,) = next_one.claim().grants
    held = lease(yard, new.lease_id)

    assert frozen.beat(old.lease_id, new.lease_id).leases == {old.lease_id: "stale", new.lease_id: "stale"}
    answer = frozen.hand_in(batch_id, {old.lease_id: [0, 1, 2, 3]}, ends=[old.lease_id], answer="frozen")
    assert (answer.parts, answer.ends) == ({old.lease_id: "stale"}, {old.lease_id: "stale"})
    assert frozen.fail(old.lease_id).leases == {old.lease_id: "stale"}
    assert frozen.release(old.lease_id, new.lease_id).leases == {old.lease_id: "stale", new.lease_id: "stale"}

    assert lease(yard, new.lease_id) == held
    assert events(yard, batch_id).count("lease.stale_report") == 2
    next_one.finish(batch_id, new)
    assert states(yard, old.lease_id, new.lease_id) == ["expired", "reported"]
    assert batch(yard, batch_id).state == "finalizing"
    assert_sound(yard)
