"""Parameters that reach across requests are left out, refused or passed, as the setting says (R-23)."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.parameters import unsupported
from app.services.context import Yard
from tests import yards
from tests.services.test_parameters import asking, ended, told
from tests.yards import CHAT, machine

CROSSING: dict[str, Any] = {"priority": -5, "keep_alive": 0, "options": {"num_gpu": 0, "num_ctx": 4096}}
NAMES = ["keep_alive", "options.num_gpu", "priority"]


def test_they_are_left_out_by_the_worker_and_are_no_need(yard: Yard) -> None:
    worker = machine(yard, runtimes=[told("ollama", "m")])
    batch_id = asking(yard, {}, CROSSING, {"priority": 0})
    assert ended(yard, batch_id).status == "in_progress"
    claimed = worker.claim()
    assert claimed.batch is not None
    assert claimed.batch.left_out == NAMES
    assert [grant.parameters for grant in claimed.grants] == [["options"]]


def test_a_batch_that_asks_for_none_names_none(yard: Yard) -> None:
    worker = machine(yard, runtimes=[told("vllm", "m")])
    ended(yard, asking(yard, {"n": 2}, {"priority": 0, "keep_alive": None}))
    claimed = worker.claim()
    assert claimed.batch is not None
    assert claimed.batch.left_out == []


def test_they_keep_a_batch_from_no_runtime(yard: Yard) -> None:
    """Neither knows all of them."""
    vllm, ollama = (machine(yard, kind, runtimes=[told(kind, "m")]) for kind in ("vllm", "ollama"))
    ended(yard, asking(yard, *[{"priority": -5, "keep_alive": 0}] * 8))
    assert vllm.claim(want=1).grants
    assert ollama.claim(want=1).grants


def test_a_server_that_refuses_them_names_each(yard: Yard) -> None:
    yard = replace(yard, cross_request="fail")
    machine(yard, runtimes=[told("ollama", "m")])
    failed = ended(yard, asking(yard, {}, CROSSING, {"n": 2}))
    assert failed.errors is not None
    assert [(error.code, error.param, error.line) for error in failed.errors.data] == [
        *(("unsupported_parameter", name, 2) for name in NAMES),
        ("unsupported_parameter", "n", 3),
    ]
    assert failed.errors.data[0].message == (
        "'keep_alive' reaches across requests, which this server refuses (cross_request_parameters = fail). "
        "Leave it out."
    )


def test_it_refuses_them_while_no_worker_is_registered(yard: Yard) -> None:
    yard = replace(yard, cross_request="fail")
    assert ended(yard, asking(yard, {"priority": 1})).status == "failed"


def test_a_server_that_passes_them_has_them_be_needs(yard: Yard) -> None:
    yard = replace(yard, cross_request="pass")
    ollama, vllm = (machine(yard, kind, runtimes=[told(kind, "m")]) for kind in ("ollama", "vllm"))
    ended(yard, asking(yard, {"priority": -5}))
    assert ollama.claim().no == "nothing"
    claimed = vllm.claim()
    assert claimed.batch is not None
    assert claimed.batch.left_out == []
    assert [grant.parameters for grant in claimed.grants] == [["priority"]]


SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": SCHEMA}, "response_format.json_schema"),
        ({"format": {"type": "object"}}, "format.json_schema"),
    ],
)
@pytest.mark.parametrize("wanted", [{}, {"unsupported_parameters": "drop"}])
def test_a_schema_for_an_ollama_that_knows_none_fails_at_validation(
    yard: Yard, body: dict[str, Any], param: str, wanted: dict[str, Any]
) -> None:
    """Before 0.5.0; `drop` leaves out no schema, for the answer would be another one."""
    names = unsupported("ollama", CHAT) | {"response_format.json_schema", "format.json_schema"}
    machine(yard, runtimes=[yards.runtime("m", kind="ollama", unsupported={CHAT: sorted(names)})])
    failed = ended(yard, asking(yard, body, {"response_format": {"type": "json_object"}}, **wanted))
    assert failed.errors is not None
    assert [(error.code, error.param, error.line) for error in failed.errors.data] == [
        ("unsupported_parameter", param, 1)
    ]
