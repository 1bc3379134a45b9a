"""A batch that names many models: bounded when it is validated, and its lists are read by no claim (PROTOCOL 7)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.db.store import Store
from app.db.tables import Batch
from app.schemas.polls import Poll
from app.services import judging, polls, requirements
from app.services.context import Yard
from tests.stored import batch, statements
from tests.yards import CHAT, Controller, created, lease, machine, new_yard, runtime, validated


def models(count: int) -> list[str]:
    return [f"model-{n}" for n in range(count)]


def test_a_batch_may_name_as_many_models_as_the_setting_says(store: Store, tmp_path: Path) -> None:
    yard = new_yard(store, tmp_path / "blobs", max_models=5)
    validated(yard, rows=5, models=models(5))
    found = ended(yard, rows=6, models=models(6))
    (error,) = found.errors
    assert (found.state, error["code"], error["param"]) == ("failed", "too_many_models", "body.model")
    assert "names 6 models" in error["message"]
    assert "may name 5 (the setting max_models)" in error["message"]


def test_the_different_needs_of_its_shards_are_bounded_too(store: Store, tmp_path: Path) -> None:
    """Four rows a shard: of nine models in turn each shard has another four."""
    yard = new_yard(store, tmp_path / "blobs", max_requirements=9)
    validated(yard, rows=36, models=models(9))
    found = ended(yard, rows=40, models=models(10))
    (error,) = found.errors
    assert (found.state, error["code"]) == ("failed", "too_many_requirements")
    assert "need 10 different sets" in error["message"]
    assert "Sort the file by model" in error["message"]


def test_many_sets_of_parameters_of_one_model_are_bounded_too(store: Store, tmp_path: Path) -> None:
    yard = new_yard(store, tmp_path / "blobs", max_requirements=2, shard_rows=1)
    asked: list[dict[str, Any]] = [{"seed": 1}, {"n": 2}, {"logprobs": True}]
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": CHAT,
            "body": {"model": "m", "messages": [{"role": "user", "content": "x"}], **more},
        }
        for number, more in enumerate(asked)
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    found = ended(yard, rows=3, content=content)
    assert [error["code"] for error in found.errors] == ["too_many_requirements"]


def test_the_names_in_all_needs_together_are_bounded(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "MAX_NAMES", 8)
    yard = new_yard(store, tmp_path / "blobs")
    validated(yard, rows=8, models=models(8))
    (error,) = ended(yard, rows=12, models=models(12)).errors
    assert error["code"] == "too_many_requirements"
    assert "name 12 models and parameters, and those of a batch may name 8" in error["message"]


def test_needs_that_are_asked_for_stay_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "KEPT", 2)
    monkeypatch.setattr(requirements, "_kept", {})
    first, *others = (Batch(id=name, requirements={"k": {"endpoint": CHAT, "models": ["m"]}}) for name in "abcd")
    found = requirements.needs_of(first)
    for other in others:
        requirements.needs_of(other)
        assert requirements.needs_of(first) is found


def ended(yard: Yard, rows: int, **wanted: Any) -> Any:
    batch_id = created(yard, rows, **wanted)
    Controller(yard).works()
    return batch(yard, batch_id)


@pytest.fixture
def crowded(store: Store, tmp_path: Path) -> tuple[Yard, str]:
    """A batch of 6,000 models, as it may have been stored before there was a bound."""
    yard = new_yard(store, tmp_path / "blobs", max_models=6000, max_requirements=6000, shard_rows=256)
    return yard, validated(yard, rows=6000, models=models(6000))


def test_no_claim_and_no_heartbeat_reads_its_lists(crowded: tuple[Yard, str]) -> None:
    yard, batch_id = crowded
    one = machine(yard, runtimes=[runtime(*models(2000)), runtime(*models(6000)[2000:4000])])
    other = machine(yard, "other")
    other.claim()  # a first call of this process reads them once
    with statements(yard) as asked:
        (grant, *_) = one.claim(want=1).grants
        one.beat(grant.lease_id)
        assert other.claim().no == "nothing"
        other.beat()
        polls.look(yard, other.caller, Poll(worker_id=other.id, boot_id=other.boot_id), polls.Told())
        one.hand_in(
            batch_id, {grant.lease_id: range(grant.first_row, grant.first_row + grant.rows)}, ends=[grant.lease_id]
        )
    assert lease(yard, grant.lease_id).state == "reported"
    lists = re.compile(r"batch\.(requirements|models)\b")
    assert [statement for statement in asked if statement.startswith("SELECT") and lists.search(statement)] == []
