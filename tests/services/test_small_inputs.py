"""Validating a small input at once: read without a lease, stored under one that begins and ends with it."""

from dataclasses import replace

from sqlalchemy import event

from app.domain.jobs import ControlVerb
from app.services import control
from app.services.context import BatchRing, Yard
from tests.interleaving import doing, held
from tests.services.test_rings import Bells
from tests.yards import (
    Controller,
    assert_sound,
    batch,
    cancel,
    control_job,
    created,
    events,
    machine,
    shards,
    validated,
)


def at_once(yard: Yard, one: Controller) -> bool:
    work = control.due(yard)
    assert work is not None
    assert control.is_small(work)
    return control.validate_at_once(yard, one.id, work, "request")


def test_it_comes_to_the_same_as_under_a_lease_of_its_own(yard: Yard) -> None:
    one = Controller(yard).hello()
    slowly, quickly = validated(yard, rows=9), created(yard, rows=9)
    assert at_once(yard, one)
    assert events(yard, quickly) == events(yard, slowly)
    assert [(job.first_row, job.rows, job.start, job.end) for job in shards(yard, quickly)] == [
        (job.first_row, job.rows, job.start, job.end) for job in shards(yard, slowly)
    ]
    found = batch(yard, quickly)
    assert (found.state, found.live, found.open_jobs, found.total) == ("validated", 0, 3, 9)
    job = control_job(yard, quickly, ControlVerb.VALIDATE)
    assert job is not None
    assert job.state == "done"
    assert_sound(yard)
    assert control.due(yard) is None


def test_it_is_one_transaction(yard: Yard) -> None:
    one = Controller(yard).hello()
    created(yard)
    work = control.due(yard)
    assert work is not None
    commits: list[object] = []
    event.listen(yard.store.engine, "commit", commits.append)
    assert control.validate_at_once(yard, one.id, work, "request")
    assert len(commits) == 1


def test_lines_that_are_wrong_fail_the_batch(yard: Yard) -> None:
    one = Controller(yard).hello()
    batch_id = created(yard, content=b"{}\n{")
    assert at_once(yard, one)
    found = batch(yard, batch_id)
    assert (found.state, found.error_count, shards(yard, batch_id)) == ("failed", 5, [])
    assert_sound(yard)


def test_whoever_waits_for_the_end_of_a_batch_that_failed_is_told(yard: Yard) -> None:
    bells = Bells()
    ringing = replace(yard, bells=bells)
    one = Controller(ringing).hello()
    batch_id = created(ringing, content=b"{")
    bells.published.clear()
    assert at_once(ringing, one)
    assert (bells.published, bells.rung) == ([], [("control", batch_id, 0.2)])


def test_of_two_that_read_it_one_stores(yard: Yard) -> None:
    one, two = Controller(yard, "one").hello(), Controller(yard, "two").hello()
    batch_id = created(yard)
    work = control.due(yard)
    assert work is not None
    with held(
        yard.store,
        lambda: control.validate_at_once(yard, one.id, work, "one"),
        at_commit_after="UPDATE batch",
    ) as first:
        second = doing(lambda: control.validate_at_once(yard, two.id, work, "two"))
        if yard.store.dialect == "sqlite":
            second.assert_waits(yard.store)
        else:
            assert not second.result()  # the job is locked, and passed over
    assert (first.result(), second.result()) == (True, False)
    assert events(yard, batch_id).count("batch.validated") == 1
    assert_sound(yard)


def test_a_batch_that_is_cancelled_while_it_is_read_gets_no_shards(yard: Yard) -> None:
    one = Controller(yard).hello()
    batch_id = created(yard)
    work = control.due(yard)
    assert work is not None
    cancel(yard, batch_id)
    assert not control.validate_at_once(yard, one.id, work, "request")
    assert shards(yard, batch_id) == []
    one.works()
    assert batch(yard, batch_id).state == "cancelled"
    assert_sound(yard)


def test_its_shards_are_rung_for_without_one_more_transaction(yard: Yard) -> None:
    bells = Bells()
    ringing = replace(yard, bells=bells)
    one = Controller(ringing).hello()
    machine(yard)
    batch_id = created(ringing)
    bells.published.clear()
    assert at_once(ringing, one)
    assert bells.published == [BatchRing("gpu", batch_id, ring_no=1, times=1)]
    assert bells.rung == []


def test_a_large_input_and_the_end_of_a_batch_are_leased_first(yard: Yard) -> None:
    created(yard, content=b" " * control.SMALL_BYTES + b"{}\n")
    work = control.due(yard)
    assert work is not None
    assert not control.is_small(work)
    assert not control.is_small(work._replace(input_bytes=1, verb=ControlVerb.FINALIZE))
