"""A pool's own timing is its own: it moves no threshold of another pool's workers, whatever was stored (PROTOCOL 4)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import Conflict
from app.domain.timing import Timing
from app.services import presence, workers
from app.services.context import Yard
from tests.stored import statements
from tests.yards import Machine, events, expire, later, lease, machine, set_rungs, states, validated, worker

SHORT = {"renew_seconds": 1.0, "grace_seconds": 7.0, "toleration_seconds": 20.0}


@pytest.fixture
def standing(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """A yard whose clock stands: time passes by `later` and `silent` alone."""
    with yard.store.read() as session:
        start = yard.store.now(session)
    monkeypatch.setattr(yard.store, "now", lambda _session: start + yard.store.clock_shift)
    presence.tick(yard)
    return yard


def in_pool(yard: Yard, pool: str, name: str = "theirs") -> Machine:
    made = Machine(yard, name, install_id=f"install-{name}", pool=pool)
    made.hello()
    made.beat()
    return made


@pytest.mark.parametrize(
    "stored",
    [
        {"renew_seconds": 10.0, "grace_seconds": 1e300, "toleration_seconds": 1e301},
        {"renew_seconds": 6.0, "grace_seconds": 6.01, "toleration_seconds": 60.0},
        {"renew_seconds": 0.6, "grace_seconds": 0.7, "toleration_seconds": 3.0},
        {"renew_seconds": 10**400, "grace_seconds": 10**400, "toleration_seconds": 10**400},
        {"grace_seconds": None, "toleration_seconds": "x"},
    ],
)
def test_whatever_a_pool_has_stored_leases_of_others_expire_in_their_time(
    standing: Yard, stored: dict[str, float]
) -> None:
    validated(standing)
    (grant,) = machine(standing).claim().grants
    set_rungs(standing, "theirs", **stored)
    assert presence.renewal_seconds(standing) >= 1
    every = 1.1 * presence.renewal_seconds(standing)
    for _ in range(int(300 / every)):
        later(standing, every, listening=False)
        assert presence.tick(standing) is None, "a tick that comes when it should is no absence"
    later(standing, 301 - int(300 / every) * every, listening=False)
    assert expire(standing) == 1
    assert states(standing, grant.lease_id) == ["expired"]
    assert events(standing, "api") == []
    in_pool(standing, "theirs").beat()


def test_an_absence_counts_for_the_pools_whose_grace_it_exceeds_and_for_no_other(standing: Yard) -> None:
    validated(standing)
    set_rungs(standing, "theirs", **SHORT)
    validated(standing, pool="theirs")
    (mine,) = machine(standing).claim().grants
    (yours,) = in_pool(standing, "theirs").claim().grants
    before = [lease(standing, grant.lease_id).expires_at for grant in (mine, yours)]
    later(standing, 12, listening=False)
    presence.tick(standing)
    after = [lease(standing, grant.lease_id).expires_at for grant in (mine, yours)]
    assert [end - start for start, end in zip(before, after, strict=True)] == [timedelta(), timedelta(seconds=12)]


def test_while_one_pool_cannot_be_heard_the_leases_of_another_expire(standing: Yard) -> None:
    validated(standing)
    set_rungs(standing, "theirs", **SHORT)
    validated(standing, pool="theirs")
    (mine,) = machine(standing).claim().grants
    later(standing, 290)
    (yours,) = in_pool(standing, "theirs").claim().grants
    later(standing, 21, listening=False)  # longer than both live, and than the grace of one
    assert expire(standing) == 1
    assert states(standing, mine.lease_id, yours.lease_id) == ["expired", "held"]
    presence.tick(standing)
    assert expire(standing) == 0


def test_gaps_that_matter_to_one_pool_keep_no_name_of_another_taken(standing: Yard) -> None:
    set_rungs(standing, "theirs", **SHORT)
    mine, yours = machine(standing), in_pool(standing, "theirs")
    for _ in range(13):  # a busy API: each gap is one for who beats once a second
        later(standing, 4, listening=False)
        presence.tick(standing)
    Machine(standing, mine.name, install_id="another").hello()
    with pytest.raises(Conflict, match="is alive"):
        Machine(standing, yours.name, install_id="another", pool="theirs").hello()


def test_silent_workers_of_a_patient_pool_keep_no_other_from_being_noted_as_offline(standing: Yard) -> None:
    set_rungs(standing, "theirs", renew_seconds=10.0, grace_seconds=80_000.0, toleration_seconds=90_000.0)
    theirs = [in_pool(standing, "theirs", f"theirs-{n}") for n in range(3)]
    later(standing, 1)
    mine = machine(standing)
    later(standing, 60)
    assert workers.mark_offline(standing, limit=2) == 1
    assert worker(standing, mine.id).offline_at is not None
    assert all(worker(standing, one.id).offline_at is None for one in theirs)


def test_many_graces_are_noted_as_offline_by_two_looks_at_the_pools(standing: Yard) -> None:
    names = [f"pool-{n}" for n in range(8)]
    for n, name in enumerate(names):
        set_rungs(standing, name, renew_seconds=10.0, grace_seconds=60.0 + n, toleration_seconds=300.0)
    silent = [machine(standing), *(in_pool(standing, name, f"of-{name}") for name in names)]
    later(standing, 65)
    with statements(standing) as asked:
        assert workers.mark_offline(standing, limit=10) == 6
    assert len([one for one in asked if "FROM pool" in one]) == 2, "their graces, and the gaps of those concerned"
    offline = [worker(standing, one.id).offline_at is not None for one in silent]
    assert offline == [True] * 6 + [False] * 3


PATIENT = {"renew_seconds": 5.0, "grace_seconds": 3_600.0, "toleration_seconds": 7_200.0}


def test_a_worker_that_was_told_a_shorter_grace_pays_for_no_absence_after_its_pool_was_given_a_longer_one(
    standing: Yard,
) -> None:
    set_rungs(standing, "theirs", renew_seconds=5.0, grace_seconds=15.0, toleration_seconds=40.0)
    validated(standing, pool="theirs")
    one = in_pool(standing, "theirs")
    (grant,) = one.claim().grants
    set_rungs(standing, "theirs", **PATIENT)
    later(standing, 100, listening=False)
    assert expire(standing) == 0
    presence.tick(standing)
    assert expire(standing) == 0
    other = Machine(standing, one.name, install_id="another", pool="theirs")
    with pytest.raises(Conflict, match="is alive"):
        other.hello()
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}
    later(standing, 41)
    assert expire(standing) == 1


def test_an_absence_is_judged_by_what_a_worker_was_told_before_the_service_was_changed(standing: Yard) -> None:
    validated(standing)
    one = machine(standing)
    (grant,) = one.claim().grants
    patient = replace(standing, timing=Timing(10.0, 3_600.0, 7_200.0))
    one.yard = patient
    later(patient, 310, listening=False)
    assert expire(patient) == 0
    presence.tick(patient)
    assert expire(patient) == 0
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}


def test_what_a_worker_that_left_was_told_counts_no_more(standing: Yard) -> None:
    set_rungs(standing, "theirs", **SHORT)
    gone = in_pool(standing, "theirs")
    set_rungs(standing, "theirs", **PATIENT)
    assert presence.renewal_seconds(standing) == SHORT["renew_seconds"]
    gone.bye()
    assert presence.renewal_seconds(standing) == PATIENT["renew_seconds"]


def with_toleration(yard: Yard, seconds: float) -> Yard:
    """The service, started again with another timing."""
    return replace(yard, timing=Timing(2.0, 9.0, seconds, kill_after_seconds=1.0))


def test_a_lease_lives_as_long_as_its_worker_was_told_though_the_service_tolerates_less_by_now(standing: Yard) -> None:
    """Its worker stops itself 280 s after the last answer: until then nobody else may run its rows."""
    validated(standing)
    one = machine(standing)
    (grant,) = one.claim().grants
    restarted = with_toleration(standing, 30)
    one.yard = restarted
    one.beat(grant.lease_id)
    for _ in range(31):
        later(restarted, 1)
    assert expire(restarted) == 0
    other = Machine(restarted, "other", install_id="install-other")
    assert other.hello().timing.toleration_seconds == 30
    other.beat()
    assert other.claim().no == "nothing"
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}
    assert worker(restarted, one.id).offline_at is None
    for _ in range(301):
        later(restarted, 1)
    assert expire(restarted) == 1
    other.beat()
    assert len(other.claim().grants) == 1


def test_more_toleration_comes_with_the_next_hello(standing: Yard) -> None:
    validated(standing, rows=8)
    short = with_toleration(standing, 30)
    one = machine(short)
    (grant,) = one.claim().grants
    one.yard = standing
    one.beat(grant.lease_id)
    found = lease(standing, grant.lease_id)
    assert (found.expires_at - found.renewed_at).total_seconds() == 30
    again = one.restarted()
    assert again.hello(held=[grant.lease_id]).timing.toleration_seconds == 300
    found = lease(standing, grant.lease_id)
    assert (found.expires_at - found.renewed_at).total_seconds() == 300


def test_what_a_worker_of_an_older_version_was_told_is_stored_with_its_next_beat(standing: Yard) -> None:
    validated(standing)
    one = machine(standing)
    with standing.store.begin() as session:
        session.get_one(type(worker(standing, one.id)), one.id).timing = {}
    one.beat()
    one.yard = with_toleration(standing, 30)
    (grant,) = one.claim().grants
    found = lease(standing, grant.lease_id)
    assert (found.expires_at - found.granted_at).total_seconds() == 300
