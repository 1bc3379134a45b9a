"""A row's parameters on one worker: who takes them, and what is left of a body without them."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from app.domain.parameters import unsupported
from app.domain.rows import Row
from app.schemas.workers import MAX_PARAMETER_NAME, MAX_PARAMETERS, RuntimeInfo
from app.worker.parameters import asking, lacking, told, unsupported_by, without_parameters
from executors.fakes import FakeExecutor
from executors.settings import ExecutorSettings

CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
BODY = b'{"model":"m", "n" : 2,"temperature":1.0,"logit_bias":{},"never_heard_of":[1e2]}'


def row(body: bytes = BODY, *, endpoint: str = CHAT, may_drop: bool = False) -> Row:
    return asking(Row(0, "row-0", endpoint, "m", body), may_drop=may_drop)


def test_a_row_is_told_what_it_asks_for_and_nothing_else_of_it_changes() -> None:
    plain = Row(0, "row-0", CHAT, "m", BODY)
    assert row() == replace(plain, parameters=frozenset({"n", "never_heard_of"}))
    nothing = replace(plain, body=b'{"model":"m","n":1}')
    assert asking(nothing, may_drop=True) is nothing


def test_a_body_nested_too_deeply_for_us_is_the_runtimes_to_judge() -> None:
    deep = Row(0, "row-0", CHAT, "m", b'{"n":2,"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}")
    assert asking(deep, may_drop=True) is deep


@pytest.mark.parametrize(
    ("kind", "lacks"), [("fake", set()), ("vllm", set()), ("ollama", {"n", "never_heard_of"}), ("mine", set())]
)
def test_a_runtime_lacks_what_its_kind_does_not_take(kind: str, lacks: set[str]) -> None:
    assert lacking(row(may_drop=True), {CHAT: unsupported(kind, CHAT)}) == lacks
    assert lacking(row(), {CHAT: unsupported(kind, CHAT)}) == (None if lacks else frozenset())


def test_what_a_row_is_about_keeps_it_from_a_runtime_whatever_may_be_dropped() -> None:
    tokens = row(b'{"model":"m","input":[1,2],"dimensions":3}', endpoint=EMBEDDINGS, may_drop=True)
    assert lacking(tokens, {EMBEDDINGS: frozenset({"dimensions"})}) == {"dimensions"}
    assert lacking(tokens, {EMBEDDINGS: frozenset({"dimensions", "input.tokens"})}) is None


def test_only_what_the_runtime_lacks_is_left_out_and_the_rest_is_as_it_was_written() -> None:
    asked = row(may_drop=True)
    lessened, gone = without_parameters(asked, {"n"})
    assert (lessened.body, gone) == (
        b'{"model":"m","temperature":1.0,"logit_bias":{},"never_heard_of":[1e2]}',
        ("n",),
    )
    assert lessened.parameters == {"never_heard_of"}
    assert without_parameters(asked, ()) == (asked, ())


def test_parameters_without_a_name_of_ours_are_left_out_under_their_own() -> None:
    asked = row(b'{"model":"m","' + b"x" * 70 + b'":1,"\\u00e9":2,"y":3}', may_drop=True)
    assert asked.parameters == {"*", "y"}
    lessened, gone = without_parameters(asked, {"*"})
    assert (lessened.body, gone) == (b'{"model":"m","y":3}', ("x" * 70, "é"))


CROSSING = (
    b'{"model":"m","priority":-9,"options" : {"num_gpu":0, "num_ctx":8192,"top_k" : 2,"main_gpu":1},'
    b'"keep_alive":0,"n":2}'
)


def test_what_reaches_across_requests_is_left_out_before_a_row_is_queued() -> None:
    left_out = frozenset({"priority", "keep_alive", "options.num_gpu", "options.main_gpu", "id_slot"})
    asked = asking(Row(0, "row-0", CHAT, "m", CROSSING), may_drop=False, left_out=left_out)
    assert asked.body == b'{"model":"m","options" : {"num_ctx":8192,"top_k" : 2},"n":2}'
    assert asked.dropped == ("keep_alive", "options.main_gpu", "options.num_gpu", "priority")
    assert asked.parameters == {"options", "n"}
    plain = Row(0, "row-0", CHAT, "m", b'{"model":"m"}')
    assert asking(plain, may_drop=False, left_out=left_out) is plain


def test_no_other_way_into_the_engine_is_left_open() -> None:
    """VLLM reads them there, too."""
    body = b'{"model":"m","vllm_xargs":{"kv_transfer_params":"x","mine":1}}'
    row = Row(0, "row-0", CHAT, "m", body)
    assert asking(row, may_drop=False).parameters == {"vllm_xargs", "vllm_xargs.kv_transfer_params"}
    asked = asking(row, may_drop=False, left_out=frozenset({"vllm_xargs.kv_transfer_params"}))
    assert (asked.body, asked.dropped) == (
        b'{"model":"m","vllm_xargs":{"mine":1}}',
        ("vllm_xargs.kv_transfer_params",),
    )


def test_only_the_named_part_of_it_is_left_out() -> None:
    asked = asking(Row(0, "row-0", CHAT, "m", CROSSING), may_drop=False, left_out=frozenset({"priority"}))
    assert asked.body == CROSSING.replace(b'"priority":-9,', b"")
    assert asked.dropped == ("priority",)


def test_a_parameter_that_is_left_out_as_a_whole_takes_its_parts_along() -> None:
    asked = asking(Row(0, "row-0", CHAT, "m", CROSSING), may_drop=True)
    lessened, gone = without_parameters(asked, {"options", "options.num_gpu"})
    assert b"options" not in lessened.body
    assert gone == ("options",)


def test_what_the_control_plane_is_told_fits_the_wire_whatever_an_executor_says() -> None:
    class Picky(FakeExecutor):
        def unsupported(self, endpoint: str) -> frozenset[str]:
            few: Collection[str] = {"n"} if endpoint == CHAT else ()
            many = [f"p{number:04}" for number in range(MAX_PARAMETERS)]
            return frozenset(few or {"x" * (MAX_PARAMETER_NAME + 1), *many, "z"})

    endpoints = [CHAT, EMBEDDINGS]
    found = told(unsupported_by(Picky(ExecutorSettings()), endpoints, {}), endpoints)
    assert found[CHAT] == ["n"]
    assert found[EMBEDDINGS] == [f"p{number:04}" for number in range(MAX_PARAMETERS)]
    RuntimeInfo(name="r", kind="k", alive=True, unsupported=found)
    assert told(unsupported_by(FakeExecutor(ExecutorSettings()), endpoints, {}), endpoints) == {}


def test_an_executor_that_fails_to_say_is_taken_by_its_last_word() -> None:
    class Broken(FakeExecutor):
        def unsupported(self, endpoint: str) -> frozenset[str]:
            raise OSError(endpoint)

    before = {CHAT: frozenset({"n"})}
    assert unsupported_by(Broken(ExecutorSettings()), [CHAT], before) == before
