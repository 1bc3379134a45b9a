"""Parameters are decided once, for the batch: who may take a shard, when it fails, and what is left out (R-23)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import select

from app.db.tables import Batch
from app.domain.parameters import unsupported
from app.schemas.batches import BatchObject
from app.schemas.workers import RuntimeInfo
from app.services import batches
from app.services.context import Yard
from tests import yards
from tests.yards import CHAT, USER, Controller, input_row, machine


def told(kind: str, *models: str, **more: Any) -> RuntimeInfo:
    """A runtime whose worker tells what it does not take."""
    return yards.runtime(*models, kind=kind, unsupported={CHAT: sorted(unsupported(kind, CHAT))}, **more)


def ended(yard: Yard, batch_id: str) -> BatchObject:
    """The batch after its validation, as its owner sees it."""
    Controller(yard).works()
    return batches.retrieve(yard, USER, batch_id)


def asking(yard: Yard, *bodies: dict[str, Any], **wanted: Any) -> str:
    """A batch with a row for each of `bodies`."""
    content = b"".join(input_row(number, **body) for number, body in enumerate(bodies))
    return yards.created(yard, content=content, **wanted)


BIASED = {"logit_bias": {"50256": -100}}


def test_in_a_mixed_pool_a_batch_goes_only_to_the_workers_that_take_its_parameters(yard: Yard) -> None:
    ollama = machine(yard, "ollama", runtimes=[told("ollama", "m")])
    vllm = machine(yard, "vllm", runtimes=[told("vllm", "m")])
    biased = asking(yard, BIASED)
    assert ended(yard, biased).status == "in_progress"
    assert ollama.claim().no == "nothing"
    assert not ollama.beat().work, "a bell for it would ring in vain"
    claimed = vllm.claim()
    assert claimed.batch is not None
    assert claimed.batch.id == biased
    assert [grant.parameters for grant in claimed.grants] == [["logit_bias"]]


def test_what_every_runtime_takes_keeps_no_worker_away(yard: Yard) -> None:
    ollama = machine(yard, runtimes=[told("ollama", "m")])
    ended(yard, asking(yard, {"temperature": 0, "max_tokens": 5, "n": 1, "logit_bias": None, "user": "u"}))
    assert [grant.parameters for grant in ollama.claim().grants] == [[]]


def test_a_batch_that_nobody_could_ever_run_fails_with_its_lines(yard: Yard) -> None:
    machine(yard, runtimes=[told("ollama", "m")])
    failed = ended(yard, asking(yard, {}, BIASED, {"n": 2, **BIASED}, {"never_heard_of": 1}))
    assert failed.status == "failed"
    assert failed.errors is not None
    assert [(error.code, error.line, error.param) for error in failed.errors.data] == [
        ("unsupported_parameter", 2, "logit_bias"),
        ("unsupported_parameter", 3, "logit_bias"),
        ("unsupported_parameter", 3, "n"),
        ("unsupported_parameter", 4, "never_heard_of"),
    ]
    assert failed.errors.data[0].message == (
        "No runtime of pool 'gpu' that serves 'm' takes 'logit_bias' on /v1/chat/completions. "
        "Leave it out, or send unsupported_parameters: 'drop'."
    )
    assert (failed.request_counts.total, failed.output_file_id) == (0, None)


def test_equal_errors_of_many_lines_are_one_entry_with_their_number(yard: Yard) -> None:
    machine(yard, runtimes=[told("ollama", "m")])
    failed = ended(yard, asking(yard, *[BIASED] * 130, {"model": "x"}, {"n": 2}))
    assert failed.errors is not None
    assert [(error.code, error.param, error.line) for error in failed.errors.data] == [
        ("unsupported_parameter", "logit_bias", 1),
        ("model_not_found", "body.model", 131),
        ("unsupported_parameter", "n", 132),
    ]
    assert failed.errors.data[0].message.endswith(" (130 times: lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and others)")
    assert yards.batch(yard, failed.id).error_count == 132


def test_a_line_that_is_malformed_hides_no_line_that_nobody_serves(yard: Yard) -> None:
    machine(yard, runtimes=[told("ollama", "m")])
    content = input_row(0, model="x") + b"{\n" + input_row(2, **BIASED) + input_row(2)
    failed = ended(yard, yards.created(yard, content=content))
    assert failed.errors is not None
    assert [(error.code, error.line) for error in failed.errors.data] == [
        ("model_not_found", 1),
        ("invalid_json_line", 2),
        ("unsupported_parameter", 3),
        ("duplicate_custom_id", 4),
    ]


def test_a_batch_that_somebody_could_run_waits_and_says_for_what(yard: Yard) -> None:
    machine(yard, "vllm", runtimes=[told("vllm", "m")]).bye()
    machine(yard, "ollama", runtimes=[told("ollama", "m")])
    waiting = ended(yard, asking(yard, BIASED))
    assert waiting.status == "in_progress"
    assert waiting.gpuyard.waiting_reason == "no worker of pool gpu that serves model m takes logit_bias now"


def test_a_runtime_that_is_down_could_take_it_later(yard: Yard) -> None:
    down = told("vllm", "m").model_copy(update={"alive": False})
    worker = machine(yard, runtimes=[down, told("ollama", "m")])
    ended(yard, asking(yard, BIASED))
    assert worker.claim().no == "nothing"
    worker.beat(runtimes=[told("vllm", "m"), told("ollama", "m")])
    assert worker.claim().grants


def test_a_worker_that_says_nothing_of_parameters_takes_everything(yard: Yard) -> None:
    """As one of an older version does."""
    word = json.loads(told("ollama", "m").model_dump_json(exclude={"unsupported"}))
    old = machine(yard, runtimes=[RuntimeInfo.model_validate(word)])
    ended(yard, asking(yard, BIASED, {"never_heard_of": 1}))
    assert old.claim().grants


def test_a_batch_validated_before_parameters_were_stored_is_claimed(yard: Yard) -> None:
    worker = machine(yard, runtimes=[told("ollama", "m")])
    batch_id = yards.validated(yard)
    with yard.store.begin() as session:
        batch = session.exec(select(Batch).where(Batch.id == batch_id)).one()
        batch.requirements = {
            key: {name: need[name] for name in ("endpoint", "models")} for key, need in batch.requirements.items()
        }
        session.add(batch)
    assert worker.claim().grants


def test_each_model_is_asked_for_what_its_own_rows_need(yard: Yard) -> None:
    """A shard with rows for both: the Ollama beside the vLLM is not asked for what only rows of the vLLM want."""
    both = machine(yard, runtimes=[told("ollama", "small"), told("vllm", "large")])
    ended(yard, asking(yard, {"model": "small"}, {"model": "large", **BIASED}))
    assert both.claim().grants
    failed = ended(yard, asking(yard, {"model": "small", **BIASED}, {"model": "large"}))
    assert failed.errors is not None
    assert [error.line for error in failed.errors.data] == [1]


def test_rows_that_no_single_worker_takes_together_fail_and_say_what_to_do(yard: Yard) -> None:
    machine(yard, "a", runtimes=[yards.runtime("m", unsupported={CHAT: ["n"]})])
    machine(yard, "b", runtimes=[yards.runtime("m", unsupported={CHAT: ["logit_bias"]})])
    failed = ended(yard, asking(yard, {"n": 2}, BIASED))
    assert failed.errors is not None
    (error,) = failed.errors.data
    assert (error.code, error.line, error.param) == ("unsupported_parameter", None, "logit_bias")
    assert error.message == (
        "No single worker of pool 'gpu' takes all of logit_bias, n, which stand among rows 1 to 2. "
        "Send one batch for each set of parameters."
    )


@pytest.mark.parametrize("by_service", [True, False])
def test_with_drop_a_batch_goes_to_whoever_serves_its_model(yard: Yard, by_service: bool) -> None:
    ollama = machine(yard, runtimes=[told("ollama", "m")])
    yard = replace(yard, drop_parameters=by_service)
    wanted = {} if by_service else {"unsupported_parameters": "drop"}
    batch_id = asking(yard, BIASED, {}, {"never_heard_of": 1}, **wanted)
    assert ended(yard, batch_id).gpuyard.unsupported_parameters == "drop"
    claimed = ollama.claim()
    assert claimed.batch is not None
    assert claimed.batch.drop_parameters


def test_a_batch_may_say_that_it_wants_no_drop(yard: Yard) -> None:
    yard = replace(yard, drop_parameters=True)
    machine(yard, runtimes=[told("ollama", "m")])
    assert ended(yard, asking(yard, BIASED, unsupported_parameters="fail")).status == "failed"


def test_what_a_row_is_about_is_never_dropped(yard: Yard) -> None:
    machine(yard, runtimes=[told("ollama", "m")])
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]
    failed = ended(yard, asking(yard, BIASED, {"messages": picture}, unsupported_parameters="drop"))
    assert failed.errors is not None
    assert [(error.line, error.param) for error in failed.errors.data] == [(2, "messages.image_url")]


def test_with_nobody_registered_a_batch_waits_whatever_it_asks_for(yard: Yard) -> None:
    waiting = ended(yard, asking(yard, BIASED))
    assert waiting.gpuyard.waiting_reason == "no worker of pool gpu is registered"
