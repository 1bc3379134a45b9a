"""PROTOCOL 5: files, counts and the final state come together and once, whatever breaks on the way."""

from contextlib import suppress

import pytest
from sqlmodel import func, select

from app.db.tables import File
from app.services import control
from app.services.context import Yard
from app.sweeps import lease_expiry
from tests.interleaving import Crash, crashing
from tests.yards import (
    Controller,
    Machine,
    assert_sound,
    batch,
    control_job,
    created,
    later,
    machine,
    result_files,
    shards,
    states,
    validated,
)


def finished(yard: Yard, one: Machine, rows: int = 6) -> str:
    """A batch whose shards are all done, and that waits to be finalized."""
    batch_id = validated(yard, rows=rows)
    for grant in one.claim(want=rows).grants:
        one.finish(batch_id, grant)
    assert batch(yard, batch_id).state == "finalizing"
    return batch_id


def files(yard: Yard) -> int:
    with yard.store.read() as session:
        return session.exec(select(func.count()).select_from(File).where(File.purpose == "batch_output")).one()


def test_a_finalizer_that_crashed_at_any_step_is_followed_by_another(yard: Yard) -> None:
    one = machine(yard)
    for step in range(1, 80, 2):
        one.beat()
        batch_id = finished(yard, one)
        grant = Controller(yard, f"control-{step}").claims()
        assert grant is not None
        before = files(yard)
        try:
            with crashing(yard.store, at_statement=step):
                control.perform(yard, grant)
        except Crash:
            if batch(yard, batch_id).state == "finalizing":
                assert files(yard) == before
                later(yard, 301)
                assert lease_expiry.run_once(yard, 100) == {"ended": 1}
                assert Controller(yard, "next").works() == 1
        else:
            break
        assert batch(yard, batch_id).state == "completed"
        assert files(yard) == before + 1
        assert len(result_files(yard, batch_id)[0]) == 6
        assert_sound(yard)
    assert step > 12


def test_of_two_finalizers_the_one_that_holds_the_lease_wins(yard: Yard) -> None:
    batch_id = finished(yard, machine(yard))
    slow = Controller(yard, "slow").claims()
    later(yard, 301)
    lease_expiry.run_once(yard, 100)
    quick = Controller(yard, "quick").claims()
    assert slow is not None
    assert quick is not None
    control.perform(yard, slow)  # it was lost, and is found again
    assert batch(yard, batch_id).state == "finalizing"
    assert files(yard) == 0
    control.perform(yard, quick)
    control.perform(yard, slow)
    assert batch(yard, batch_id).state == "completed"
    assert files(yard) == 1
    assert_sound(yard)


def test_a_batch_that_ended_never_changes_again(yard: Yard) -> None:
    one = machine(yard)
    batch_id = finished(yard, one)
    grant = Controller(yard).claims()
    assert grant is not None
    control.perform(yard, grant)
    before = batch(yard, batch_id)
    control.perform(yard, grant)
    control.put_off(yard, grant, Exception("too late"))
    assert batch(yard, batch_id) == before
    assert files(yard) == 1


def test_control_work_that_failed_is_put_off_with_a_growing_pause(yard: Yard) -> None:
    batch_id = created(yard)
    one = Controller(yard)
    pauses = []
    for _ in range(8):
        grant = one.claims()
        assert grant is not None
        control.put_off(yard, grant, Exception("disk full"))
        job = control_job(yard, batch_id, grant.verb)
        assert job is not None
        assert job.not_before_at is not None
        assert one.claims() is None
        with yard.store.read() as session:
            pauses.append(round((job.not_before_at - yard.store.now(session)).total_seconds()))
        later(yard, pauses[-1] + 1)
    assert pauses[:3] == [2, 4, 8]
    assert pauses[-2:] == [60, 60]
    one.works()
    assert batch(yard, batch_id).state == "validated"
    assert_sound(yard)


def test_work_that_is_put_off_keeps_nobody_waiting(yard: Yard) -> None:
    created(yard)
    other = created(yard)
    one = Controller(yard)
    grant = one.claims()
    assert grant is not None
    control.put_off(yard, grant, Exception("its input cannot be read"))
    assert one.works() == 1
    assert batch(yard, other).state == "validated"


def test_a_validation_whose_worker_was_lost_is_done_by_the_next(yard: Yard) -> None:
    batch_id = created(yard, rows=8)
    grant = Controller(yard, "lost").claims()
    assert grant is not None
    later(yard, 301)
    lease_expiry.run_once(yard, 100)
    Controller(yard, "next").works()
    control.perform(yard, grant)
    assert states(yard, grant.lease_id) == ["expired"]
    assert len(shards(yard, batch_id)) == 2
    assert batch(yard, batch_id).open_jobs == 2
    assert_sound(yard)


@pytest.mark.parametrize("step", range(1, 16, 3))
def test_a_validation_that_crashed_makes_its_shards_once(yard: Yard, step: int) -> None:
    batch_id = created(yard, rows=8)
    grant = Controller(yard, "lost").claims()
    assert grant is not None
    with suppress(Crash), crashing(yard.store, at_statement=step):
        control.perform(yard, grant)
    later(yard, 301)
    lease_expiry.run_once(yard, 100)
    Controller(yard, "next").works()
    assert batch(yard, batch_id).state == "validated"
    assert len(shards(yard, batch_id)) == 2
    assert_sound(yard)
