"""What the control plane knows of a pull, and whom it gives the shards that need the model."""

from typing import Any

import pytest

from app.domain.errors import Conflict
from app.domain.pulls import PullStatus
from app.schemas.pulls import ModelProgress
from app.schemas.workers import RuntimeInfo
from app.services import batches, model_progress, worker_views
from app.services.context import Yard
from app.services.pulls import FAILED_SECONDS
from tests.yards import CHAT, USER, Machine, events, later, machine, validated


def runtime(*models: str) -> RuntimeInfo:
    return RuntimeInfo(name="ollama@here", kind="ollama", alive=True, models=list(models), endpoints=[CHAT], pulls=True)


def pulling_machine(yard: Yard, name: str = "one", *models: str, slots: int = 1) -> Machine:
    """A ready worker whose runtime fetches what it lacks."""
    found = machine(yard, name, models=models, slots=slots)
    found.beat(runtimes=[runtime(*models)])
    return found


def tell(found: Machine, status: PullStatus = PullStatus.PULLING, number: int = 1, **more: Any) -> None:
    report = ModelProgress(
        worker_id=found.id,
        boot_id=found.boot_id,
        number=number,
        runtime="ollama@here",
        model=more.pop("model", "m"),
        status=status,
        **more,
    )
    model_progress.note(found.yard, USER, report)


def shown(yard: Yard, name: str = "one") -> list[tuple[str, str, int]]:
    return [(pull.model, pull.status, pull.completed) for pull in worker_views.show(yard, USER, name).pulls]


def happened(yard: Yard, subject: str) -> list[str]:
    return [kind for kind in events(yard, subject) if kind.startswith("model.")]


def waits(yard: Yard, batch_id: str) -> str | None:
    return batches.retrieve(yard, USER, batch_id).gpuyard.waiting_reason


def test_a_worker_that_fetches_models_gets_a_shard_whose_model_it_lacks(yard: Yard) -> None:
    batch_id = validated(yard)
    assert machine(yard, "poor", models=["other"]).claim().no == "nothing"
    answer = pulling_machine(yard, "one", "other").claim()
    assert answer.batch is not None
    assert answer.batch.id == batch_id


def test_a_batch_says_how_far_its_model_is_and_events_when_it_began_and_ended(yard: Yard) -> None:
    batch_id = validated(yard)
    one = pulling_machine(yard)
    one.claim()
    tell(one, completed=5, total=0)
    tell(one, completed=600_000_000, total=1_300_000_000)
    assert waits(yard, batch_id) == "worker one fetches model m: 46 % of 1.3 GB"
    tell(one, PullStatus.PULLED, completed=1_300_000_000)
    assert waits(yard, batch_id) is None
    assert shown(yard) == [("m", "pulled", 1_300_000_000)]
    for subject in (batch_id, one.id):
        assert happened(yard, subject) == [
            "model.pulling",
            "model.pulled",
        ]


def test_late_and_doubled_reports_change_nothing(yard: Yard) -> None:
    one = pulling_machine(yard)
    tell(one, completed=60, total=100)
    tell(one, completed=40, total=100)
    assert shown(yard) == [("m", "pulling", 60)]
    tell(one, PullStatus.FAILED, error="file does not exist")
    tell(one, completed=70, total=100)
    tell(one, PullStatus.FAILED, error="file does not exist")
    assert shown(yard) == [("m", "failed", 60)]
    assert happened(yard, one.id) == [
        "model.pulling",
        "model.pull_failed",
    ]


def test_a_few_pulls_are_remembered_and_none_of_the_process_before(yard: Yard) -> None:
    one = pulling_machine(yard)
    tell(one, number=1, model="endless")
    for number in range(2, 13):
        tell(one, PullStatus.PULLED, number, model=f"m{number}")
    assert [model for model, _, _ in shown(yard)] == ["endless", *(f"m{number}" for number in range(5, 13))]
    again = one.restarted()
    again.hello()
    assert shown(yard) == []
    with pytest.raises(Conflict):
        tell(one, number=13)


def test_a_worker_that_fetches_a_model_takes_no_second_batch_with_it(yard: Yard) -> None:
    first, second = validated(yard, rows=8), validated(yard)
    one = pulling_machine(yard, "one", "other", slots=2)
    one.claim()
    tell(one)
    assert one.claim().no == "nothing"
    assert not one.beat(*one.grants).work
    assert waits(yard, second) == "worker one fetches model m"
    more = one.claim(running=first)  # of its own batch it may have more
    assert more.batch is not None
    other = validated(yard, models=["other"])
    beside = one.claim()
    assert beside.batch is not None
    assert beside.batch.id == other
    has_it = machine(yard, "two", models=["m"])
    answer = has_it.claim()
    assert answer.batch is not None
    assert answer.batch.id == second


def test_what_a_worker_could_not_fetch_goes_to_those_who_can(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one = pulling_machine(yard)
    (lease_id,) = [grant.lease_id for grant in one.claim().grants]
    tell(one, PullStatus.FAILED, error="file does not exist")
    one.fail(lease_id, "file does not exist")
    two = machine(yard, "two", models=["m"])
    assert one.claim().no == "nothing"
    answer = two.claim()
    assert answer.batch is not None
    assert answer.batch.id == batch_id
    later(yard, FAILED_SECONDS + 1)
    two.beat(*two.grants)
    one.beat()
    assert one.claim().batch is not None  # it may try again


def test_without_anybody_who_can_it_comes_back_and_fails_with_the_runtimes_words(yard: Yard) -> None:
    batch_id = validated(yard)
    one, two = pulling_machine(yard), pulling_machine(yard, "two")
    for found in (one, two):
        (grant,) = found.claim().grants
        tell(found, PullStatus.FAILED, error="file does not exist")
        found.fail(grant.lease_id, "The model 'm' could not be fetched: file does not exist")
    (grant,) = one.claim().grants
    one.fail(grant.lease_id, "The model 'm' could not be fetched: file does not exist")
    (error,) = batches.retrieve(yard, USER, batch_id).gpuyard.top_errors
    assert error.message == "The model 'm' could not be fetched: file does not exist"
