"""Why a worker may not take a job: the first reason that holds, and models that are served or never could be."""

from dataclasses import replace

import pytest

from app.domain.eligibility import (
    No,
    PoolRules,
    Requirement,
    Serving,
    WorkerView,
    can_serve,
    missing_models,
    missing_parameters,
    why_no_job,
)
from app.domain.workers import Phase, WorkerState

CHAT = "/v1/chat/completions"
READY = WorkerView(WorkerState.ACTIVE, Phase.READY, unreachable=False, free_slots=1, load_per_cpu=1.0, memory_gb=10.0)
RULES = PoolRules(max_load=1.0, min_memory_gb=10.0)
WRONG = (
    ({"state": WorkerState.DRAINING}, No.DRAINING),
    ({"phase": Phase.SETUP}, No.PHASE),
    ({"unreachable": True}, No.UNREACHABLE),
    ({"disk_full": True}, No.DISK),
    ({"memory_gb": 9.9}, No.MEMORY),
    ({"load_per_cpu": 1.1}, No.LOAD),
    ({"free_slots": 0}, No.SLOTS),
)


def test_a_ready_worker_on_the_very_thresholds_may() -> None:
    assert why_no_job(READY, RULES) is None


@pytest.mark.parametrize("first", range(len(WRONG)))
def test_the_first_reason_that_holds_is_given(first: int) -> None:
    """Everything is wrong from `first` on (REQUIREMENTS R-34)."""
    view = READY
    for change, _ in WRONG[first:]:
        view = replace(view, **change)
    assert why_no_job(view, RULES) is WRONG[first][1]


@pytest.mark.parametrize("state", [WorkerState.GONE, WorkerState.DRAINING])
def test_who_leaves_gets_nothing(state: WorkerState) -> None:
    assert why_no_job(replace(READY, state=state), RULES) is No.DRAINING


def test_a_pool_without_thresholds_asks_for_none() -> None:
    assert why_no_job(replace(READY, load_per_cpu=99.0, memory_gb=0.1), PoolRules()) is None


def test_a_host_that_tells_nothing_is_not_judged() -> None:
    assert why_no_job(replace(READY, load_per_cpu=None, memory_gb=None), RULES) is None


def serving(*models: str, kind: str = "vllm", alive: bool = True, pulls: bool = False) -> Serving:
    return Serving(kind, frozenset(models), frozenset({CHAT}), alive=alive, pulls=pulls)


def test_runtimes_serve_together_what_none_serves_alone() -> None:
    need = Requirement(CHAT, ("a", "b"))
    assert can_serve([serving("a"), serving("b")], need, live_only=True)
    assert not can_serve([serving("a")], need, live_only=True)


def test_a_runtime_that_is_down_serves_later_and_not_now() -> None:
    need = Requirement(CHAT, ("a",))
    down = [serving("a", alive=False)]
    assert (can_serve(down, need, live_only=True), can_serve(down, need, live_only=False)) == (False, True)


def test_on_ollama_x_is_x_latest_and_elsewhere_it_is_not() -> None:
    for asked, has in (("x", "x:latest"), ("x:latest", "x")):
        need = Requirement(CHAT, (asked,))
        assert can_serve([serving(has, kind="ollama")], need, live_only=True)
        assert not can_serve([serving(has)], need, live_only=True)


def test_who_pulls_serves_everything_on_its_endpoints() -> None:
    pulling = [serving(kind="ollama", pulls=True)]
    assert can_serve(pulling, Requirement(CHAT, ("any",)), live_only=True)
    assert not can_serve(pulling, Requirement("/v1/embeddings", ("any",)), live_only=True)


def test_only_models_that_nobody_ever_served_are_missing() -> None:
    pool = [[serving("a", alive=False)], [serving("b")]]
    assert missing_models(pool, Requirement(CHAT, ("a", "b", "c"))) == ("c",)


def test_a_runtime_must_take_what_the_rows_of_its_model_ask_for() -> None:
    refusing = replace(serving("a"), unsupported={CHAT: frozenset({"n"}), "/v1/embeddings": frozenset({"z"})})
    assert not can_serve([refusing], Requirement(CHAT, ("a",), (("a", ("n", "z")),)), live_only=True)
    assert can_serve([refusing], Requirement(CHAT, ("a",), (("a", ("z",)),)), live_only=True)
    assert can_serve([refusing, serving("a")], Requirement(CHAT, ("a",), (("a", ("n",)),)), live_only=True)
    other = Requirement(CHAT, ("a", "b"), (("b", ("n",)),))
    assert can_serve([refusing, serving("b")], other, live_only=True)


def test_only_parameters_that_nobody_could_ever_take_are_missing() -> None:
    refusing = replace(serving("a"), unsupported={CHAT: frozenset({"n", "echo"})})
    taking_one = replace(serving("a", alive=False), unsupported={CHAT: frozenset({"n"})})
    need = Requirement(CHAT, ("a", "b"), (("a", ("echo", "n", "z")), ("b", ("n",))))
    assert missing_parameters([[refusing], [taking_one, serving("b")]], need) == {"a": {"n"}}
    assert missing_parameters([[serving("b")]], need) == {}, "a model that nobody has is another matter"


def test_equal_needs_have_equal_keys() -> None:
    assert Requirement(CHAT, ("a", "b")).key == Requirement(CHAT, ("b", "a")).key
    assert Requirement(CHAT, ("a",)).key != Requirement("/v1/embeddings", ("a",)).key
    assert Requirement(CHAT, ("a",), (("a", ("n", "z")),)).key == Requirement(CHAT, ("a",), (("a", ("z", "n")),)).key
    assert Requirement(CHAT, ("a",), (("a", ("n",)),)).key != Requirement(CHAT, ("a",)).key
