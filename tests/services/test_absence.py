"""PROTOCOL 4: no worker pays for the service's own absence."""

import pytest
from sqlalchemy import text, update
from sqlmodel import col

from app.db.leases import overdue
from app.db.tables import Job
from app.domain.errors import Conflict
from app.services import presence, worker_views
from app.services.context import Yard
from app.services.leases import end_silenced
from app.sweeps import heartbeat_sweeper
from tests.interleaving import doing
from tests.yards import (
    USER,
    Machine,
    cancel,
    events,
    expire,
    later,
    lease,
    machine,
    set_rungs,
    shards,
    states,
    validated,
    worker,
)


def test_nothing_expires_while_nobody_could_hear_a_heartbeat(yard: Yard) -> None:
    """LS-07."""
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    later(yard, 360, listening=False)
    assert expire(yard) == 0
    presence.tick(yard)
    assert expire(yard) == 0
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}


def test_a_sweep_that_the_machine_fell_asleep_under_ends_nothing_that_was_renewed_before(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    later(yard, 301)
    with yard.store.read() as session:
        assert overdue(session, yard.store.now(session), 10) == [grant.lease_id], "a sweep has seen it"
    one.beat(grant.lease_id)
    later(yard, 3600, listening=False)
    assert not end_silenced(yard, grant.lease_id, reason="its worker fell silent", overdue_only=True)
    presence.tick(yard)
    assert states(yard, grant.lease_id) == ["held"]
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}


def test_no_other_install_takes_a_name_whose_worker_nobody_could_hear(yard: Yard) -> None:
    one = machine(yard)
    other = Machine(yard, "one", install_id="another")
    later(yard, 360, listening=False)
    with pytest.raises(Conflict, match="is alive"):  # no API has said yet that it is back
        other.hello()
    presence.tick(yard)
    later(yard, 49)
    with pytest.raises(Conflict, match="is alive"):
        other.hello()
    later(yard, 2)
    other.hello()
    with pytest.raises(Conflict, match="superseded"):
        one.beat()


def test_a_restart_of_the_service_that_is_no_absence_gives_no_name_away(yard: Yard) -> None:
    """Away for 45 of its 55 silent seconds: it had no chance to be heard for most of its grace."""
    machine(yard)
    later(yard, 10)
    later(yard, 45, listening=False)
    presence.tick(yard)
    other = Machine(yard, "one", install_id="another")
    with pytest.raises(Conflict, match="is alive"):
        other.hello()
    later(yard, 51)
    other.hello()


def test_the_gap_is_added_exactly_once_by_many_tickers(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    before = lease(yard, grant.lease_id).expires_at
    later(yard, 360, listening=False)
    tickers = [doing(lambda: presence.tick(yard)) for _ in range(6)]
    gaps = [gap for ticker in tickers if (gap := ticker.result()) is not None]
    assert len(gaps) == 1
    assert lease(yard, grant.lease_id).expires_at - before == gaps[0]
    assert 360 <= gaps[0].total_seconds() < 370
    assert events(yard, "api") == ["service.absence"]


def test_the_first_tick_ever_may_come_from_two_at_once(yard: Yard) -> None:
    with yard.store.begin() as session:
        session.execute(text("DELETE FROM presence_tick"))
    for ticker in [doing(lambda: presence.tick(yard)) for _ in range(6)]:
        assert ticker.result() is None


def test_before_the_first_tick_nothing_expires(yard: Yard) -> None:
    validated(yard)
    machine(yard).claim()
    later(yard, 360)
    with yard.store.begin() as session:
        session.execute(text("DELETE FROM presence_tick"))
    assert expire(yard) == 0


def test_a_short_gap_adds_nothing(yard: Yard) -> None:
    validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    before = lease(yard, grant.lease_id).expires_at
    later(yard, 45, listening=False)
    assert presence.tick(yard) is None
    assert lease(yard, grant.lease_id).expires_at == before


def test_an_absence_within_the_services_grace_is_one_where_a_pools_is_shorter(
    yard: Yard,
) -> None:
    """Forty seconds, of a grace of fifty: this pool's workers tolerate thirty."""
    validated(yard)
    set_rungs(yard, renew_seconds=2.0, grace_seconds=8.0, toleration_seconds=30.0)
    one = machine(yard)
    (grant,) = one.claim().grants
    later(yard, 40, listening=False)
    assert expire(yard) == 0
    presence.tick(yard)
    assert expire(yard) == 0
    assert one.beat(grant.lease_id).leases == {grant.lease_id: "renewed"}
    later(yard, 31)
    assert expire(yard) == 1


def test_a_stopping_lease_is_given_the_gap_too(yard: Yard) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    (grant,) = one.claim().grants
    cancel(yard, batch_id)
    later(yard, 100, listening=False)
    presence.tick(yard)
    assert expire(yard) == 0
    assert one.hand_in(batch_id, {grant.lease_id: [0]}).parts == {grant.lease_id: "stored"}


def test_a_late_sweep_expires_what_died_and_nothing_else(yard: Yard) -> None:
    """The sweep did not run for an hour; heartbeats could be heard all the while."""
    validated(yard, rows=8)
    dead, alive = machine(yard, "dead"), machine(yard, "alive")
    (lost,), (kept,) = dead.claim().grants, alive.claim().grants
    for _ in range(12):
        later(yard, 290)
        alive.beat(kept.lease_id)
    assert expire(yard) == 1
    assert states(yard, lost.lease_id, kept.lease_id) == ["expired", "held"]


def test_a_lease_that_no_sweep_can_end_keeps_no_other_from_its_end(yard: Yard) -> None:
    """By a defect its job is where no table lets it go from; a sweep meets it first each time."""
    batch_id = validated(yard, rows=8)
    one = machine(yard)
    stuck, other = (grant.lease_id for grant in one.claim(want=8).grants)
    job_id = lease(yard, stuck).job_id
    with yard.store.begin() as session:
        session.execute(update(Job).where(col(Job.id) == job_id).values(state="done"))
    later(yard, 1)
    one.beat(other)  # so that it comes second
    later(yard, 301)
    for _ in range(2):
        expire(yard)
        assert states(yard, stuck, other) == ["held", "expired"]
    assert [job.state for job in shards(yard, batch_id)] == ["done", "queued"]


def test_no_worker_is_called_silent_for_what_nobody_could_hear(yard: Yard) -> None:
    """Neither by a sweep of another process while no API listens, nor by anybody at its return."""
    one = machine(yard)
    later(yard, 16 * 60, listening=False)
    assert heartbeat_sweeper.run_once(yard, 100) == {"offline": 0}
    presence.tick(yard)
    assert heartbeat_sweeper.run_once(yard, 100) == {"offline": 0}
    shown = worker_views.show(yard, USER, one.id)
    assert (shown.state, shown.no_lease, shown.slots["batches"].free) == ("active", None, 1)
    later(yard, 51)
    assert heartbeat_sweeper.run_once(yard, 100) == {"offline": 1}
    assert worker_views.show(yard, USER, one.id).state == "offline"


def test_silence_is_stored_once_and_forgotten_with_the_next_beat(yard: Yard) -> None:
    one = machine(yard)
    later(yard, 60)
    assert heartbeat_sweeper.run_once(yard, 100) == {"offline": 1}
    assert heartbeat_sweeper.run_once(yard, 100) == {"offline": 0}
    assert worker(yard, one.id).offline_at is not None
    one.beat()
    assert worker(yard, one.id).offline_at is None
    assert events(yard, one.id)[-2:] == ["worker.offline", "worker.online"]
