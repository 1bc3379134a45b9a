"""A model that nobody serves as far as is known: workers list theirs again before its batch is refused (R-23)."""

from collections.abc import Sequence
from uuid import uuid4

import pytest

from app.domain.jobs import ControlVerb
from app.domain.workers import Phase
from app.schemas.batches import BatchObject
from app.services import batches, control
from app.services.context import Yard
from app.services.stops import cancel
from app.services.validating import ASK_SECONDS
from tests import yards
from tests.soundness import assert_sound
from tests.stored import batch, control_job
from tests.yards import USER, Controller, Machine, later, machine, runtime


def knowing(yard: Yard, name: str = "one", *, phase: Phase = Phase.READY) -> Machine:
    """A worker of today's version, which has told so by a heartbeat."""
    one = machine(yard, name)
    one.beat(looked=0, phase=phase)
    return one


def tried(yard: Yard, *models: str) -> str:
    """A batch for these models whose validation was tried once."""
    batch_id = yards.created(yard, rows=4, models=models or ("new",))
    Controller(yard).works()
    return batch_id


def now(yard: Yard, batch_id: str) -> BatchObject:
    Controller(yard, "another").works()
    return batches.retrieve(yard, USER, batch_id)


def looks(one: Machine, *models: str) -> None:
    """The worker hears the request, and answers with what it found."""
    look = one.beat(looked=0).look
    assert look is not None
    one.beat(looked=look, runtimes=[runtime(*models)])


def test_a_model_that_has_just_appeared_costs_its_batch_nothing(yard: Yard) -> None:
    one = knowing(yard)
    batch_id = tried(yard)
    waiting = now(yard, batch_id)
    assert waiting.status == "validating"
    assert waiting.gpuyard.waiting_reason == (
        "no worker of pool gpu serves 'new': they are asked for their models again"
    )
    assert_sound(yard)
    looks(one, "m", "new")
    assert now(yard, batch_id).status == "in_progress"
    assert batch(yard, batch_id).waiting_reason is None
    assert one.claim().grants
    assert one.beat(looked=0).look is None, "it is asked once"
    assert_sound(yard)


def test_when_all_have_looked_and_none_has_it_the_batch_fails_at_once(yard: Yard) -> None:
    one, two = knowing(yard, "one"), knowing(yard, "two")
    batch_id = tried(yard)
    looks(one, "m")
    assert now(yard, batch_id).status == "validating"
    looks(two, "m", "other")
    failed = now(yard, batch_id)
    assert failed.errors is not None
    assert [(error.code, error.line) for error in failed.errors.data] == [("model_not_found", n) for n in (1, 2, 3, 4)]
    assert "It has m, other." in failed.errors.data[0].message
    assert_sound(yard)


def test_a_worker_that_does_not_answer_is_waited_for_for_three_heartbeats(yard: Yard) -> None:
    one = knowing(yard)
    batch_id = tried(yard)
    for _ in range(5):
        later(yard, ASK_SECONDS)
        one.beat(looked=0)
        assert now(yard, batch_id).status == "validating"
    later(yard, ASK_SECONDS)
    assert now(yard, batch_id).status == "failed"


def test_a_worker_that_leaves_meanwhile_is_not_waited_for(yard: Yard) -> None:
    one = knowing(yard)
    batch_id = tried(yard)
    one.bye()
    later(yard, ASK_SECONDS)
    assert now(yard, batch_id).status == "failed"


@pytest.mark.parametrize("who", [(), ("old",), ("gone",)])
def test_with_nobody_who_could_bring_news_it_fails_at_once(yard: Yard, who: Sequence[str]) -> None:
    """An older worker does not know the request."""
    machine(yard, "was").bye()
    for name in who:
        one = machine(yard, name) if name == "old" else knowing(yard, name)
        if name == "gone":
            one.bye()
    assert batch(yard, tried(yard)).state == "failed"


def test_a_second_batch_is_asked_for_anew(yard: Yard) -> None:
    """A look that began before it was sent says nothing of it."""
    one = knowing(yard)
    first = tried(yard)
    looks(one, "m")
    assert now(yard, first).status == "failed"
    later(yard, 1)
    second = tried(yard)
    assert batch(yard, second).state == "validating"
    looks(one, "m", "new")
    assert now(yard, second).status == "in_progress"


def test_a_small_input_waits_like_any_other(yard: Yard) -> None:
    one, worker = knowing(yard), Controller(yard).hello()
    batch_id = yards.created(yard, rows=4, models=["new"])
    assert validated_at_once(yard, worker)
    assert batch(yard, batch_id).state == "validating"
    assert control.due(yard) is None
    looks(one, "m", "new")
    assert validated_at_once(yard, worker)
    assert batch(yard, batch_id).state == "validated"
    assert_sound(yard)


def validated_at_once(yard: Yard, worker: Controller) -> bool:
    work = control.due(yard)
    assert work is not None
    return control.validate_at_once(yard, worker.id, work, uuid4().hex)


def test_a_model_that_is_there_asks_nobody(yard: Yard) -> None:
    one = knowing(yard)
    assert batch(yard, tried(yard, "m")).state == "validated"
    assert one.beat(looked=0).look is None


def test_a_batch_that_waits_can_be_cancelled(yard: Yard) -> None:
    knowing(yard)
    batch_id = tried(yard)
    cancel(yard, USER, batch_id)
    later(yard, ASK_SECONDS)
    assert now(yard, batch_id).status == "cancelled"
    job = control_job(yard, batch_id, ControlVerb.VALIDATE)
    assert job is not None
    assert job.state == "cancelled"
    assert_sound(yard)


def test_an_answer_of_the_future_is_none(yard: Yard) -> None:
    one = knowing(yard)
    one.beat(looked=2**62)
    later(yard, 1)
    batch_id = tried(yard)
    assert batch(yard, batch_id).state == "validating"
    looks(one, "m", "new")
    assert now(yard, batch_id).status == "in_progress"
