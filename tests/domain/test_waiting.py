"""A batch that waits says why (DESIGN 7, "Why not")."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.eligibility import PoolRules, Requirement, Serving, WorkerView
from app.domain.pulls import Pull, PullStatus
from app.domain.waiting import why_held, why_no_rows, why_waiting
from app.domain.workers import Phase, WorkerState

CHAT = "/v1/chat/completions"
NEED = Requirement(CHAT, ("m",))
DOWN = Serving("vllm", frozenset({"m"}), frozenset({CHAT}), alive=False, name="vllm@here", reason="connection refused")

NEVER_SEEN = Serving("vllm", frozenset(), frozenset(), alive=False, name="vllm@late")
SAID = "vllm@here of worker gpu-1 is down (connection refused)"


def worker(**change: Any) -> WorkerView:
    given: dict[str, Any] = {
        "state": WorkerState.ACTIVE,
        "phase": Phase.READY,
        "unreachable": False,
        "free_slots": 1,
        "name": "gpu-1",
        "runtimes": (Serving("vllm", frozenset({"m"}), frozenset({CHAT})),),
    }
    return WorkerView(**(given | change))


def why(*workers: WorkerView, earlier: int = 0, needs: tuple[Requirement, ...] = (NEED,), **rules: Any) -> str:
    return why_waiting(workers, needs, pool="gpu", rules=PoolRules(**rules), earlier=earlier)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ((), "no worker of pool gpu is registered"),
        ((worker(state=WorkerState.GONE),), "no worker of pool gpu is registered"),
        ((worker(unreachable=True),), "the only worker of pool gpu is unreachable"),
        ((worker(unreachable=True),) * 2, "all 2 workers of pool gpu are unreachable"),
        ((worker(runtimes=()),), "no runtime of pool gpu is up"),
        (
            (worker(runtimes=(DOWN,)),),
            f"no runtime of pool gpu is up: {SAID}",
        ),
        (
            (worker(runtimes=(DOWN, Serving("vllm", frozenset({"other"}), frozenset({CHAT})))),),
            f"no worker of pool gpu serves model m now: {SAID}",
        ),
        (
            (worker(runtimes=(NEVER_SEEN, Serving("vllm", frozenset({"other"}), frozenset({CHAT})))),),
            "no worker of pool gpu serves model m now: vllm@late of worker gpu-1 is down",
        ),
        (
            (worker(runtimes=(DOWN,)),) * 4,
            f"no runtime of pool gpu is up: {SAID}; {SAID}; and 2 more",
        ),
        (
            (worker(runtimes=(Serving("vllm", frozenset({"other"}), frozenset({CHAT})),)), worker(unreachable=True)),
            "no worker of pool gpu serves model m now",
        ),
        (
            (worker(runtimes=(Serving("vllm", frozenset({"m"}), frozenset({"/v1/embeddings"})),)),),
            "no worker of pool gpu serves /v1/chat/completions now",
        ),
        ((worker(free_slots=0),), "all slots of pool gpu are busy"),
        (
            (worker(free_slots=0), worker(state=WorkerState.DRAINING), worker(state=WorkerState.DRAINING)),
            "no worker of pool gpu is free: 2 draining, 1 busy",
        ),
        ((worker(phase=Phase.SETUP),), "no worker of pool gpu is free: 1 setting up"),
        ((worker(), worker(free_slots=0)), "about to start on the free worker of pool gpu"),
        ((worker(), worker()), "about to start on one of 2 free workers of pool gpu"),
    ],
)
def test_the_first_reason_that_keeps_every_worker_away_is_said(workers: tuple[WorkerView, ...], said: str) -> None:
    assert why(*workers) == said


def test_earlier_batches_are_the_reason_only_while_nobody_is_free() -> None:
    assert why(worker(free_slots=0), earlier=3) == "3 earlier batches of pool gpu first"
    assert why(worker(free_slots=0), earlier=1) == "1 earlier batch of pool gpu first"
    assert why(worker(), earlier=3).startswith("about to start")


def test_a_pools_thresholds_count() -> None:
    assert why(worker(load_per_cpu=2.0), max_load=1.0) == "no worker of pool gpu is free: 1 over the load bound"
    assert why(worker(memory_gb=1.0), min_memory_gb=2.0) == "no worker of pool gpu is free: 1 short of memory"


def test_one_shard_that_may_start_is_enough() -> None:
    other = Requirement(CHAT, ("other",))
    assert why(worker(), needs=(other, NEED)).startswith("about to start")
    assert why(worker(), needs=(other,)) == "no worker of pool gpu serves model other now"


def test_a_parameter_that_nobody_takes_now_is_named_with_its_model() -> None:
    refusing = Serving(
        "ollama", frozenset({"m"}), frozenset({CHAT}), unsupported={CHAT: frozenset({"n", "logit_bias"})}
    )
    asking = Requirement(CHAT, ("m",), (("m", ("logit_bias", "n", "seed")),))
    said = why(worker(runtimes=(refusing,)), needs=(asking,))
    assert said == "no worker of pool gpu that serves model m takes logit_bias, n now"


def test_who_would_take_a_parameter_and_is_down_is_named_and_of_many_parameters_a_few() -> None:
    names = [f"p{number}" for number in range(8)]
    refusing = Serving("ollama", frozenset({"m"}), frozenset({CHAT}), unsupported={CHAT: frozenset(names)})
    down = Serving("vllm", frozenset({"m"}), frozenset({CHAT}), alive=False, name="r", reason="no answer")
    said = why(worker(runtimes=(refusing, down), name="w"), needs=(Requirement(CHAT, ("m",), (("m", tuple(names)),)),))
    assert said == (
        "no worker of pool gpu that serves model m takes p0, p1, p2, p3, p4 and 3 more now: "
        "r of worker w is down (no answer)"
    )


def test_parameters_that_no_single_worker_takes_together_are_said_to_be_so() -> None:
    runtimes = [
        Serving("a", frozenset({"m"}), frozenset({CHAT}), unsupported={CHAT: frozenset({name})})
        for name in ("n", "echo")
    ]
    asking = Requirement(CHAT, ("m",), (("m", ("echo", "n")),))
    said = why(*(worker(runtimes=(one,)) for one in runtimes), needs=(asking,))
    assert said == "no worker of pool gpu serves all models and takes all parameters of a shard now"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "worker gpu-1 fetches model m"),
        ({"completed": 4_000_000}, "worker gpu-1 fetches model m: 4.0 MB so far"),
        ({"completed": 600_000_000, "total": 1_300_000_000}, "worker gpu-1 fetches model m: 46 % of 1.3 GB"),
        ({"status": PullStatus.PULLED}, None),
        ({"model": "of another batch"}, None),
    ],
)
def test_a_model_that_is_being_fetched_is_why_no_row_runs(change: dict[str, Any], said: str | None) -> None:
    given: dict[str, Any] = {"number": 1, "runtime": "ollama@here", "model": "m"}
    assert why_no_rows([("gpu-1", [Pull(**(given | change))])], ["m"]) == said


WELL = Serving("vllm", frozenset({"m"}), frozenset({CHAT}), name="vllm@there")
FAILING = replace(WELL, name="vllm@busy", reason="rows fail, one at a time is tried: it answered 503")
BUSY = "vllm@busy of worker gpu-1: rows fail, one at a time is tried: it answered 503"


@pytest.mark.parametrize(
    ("runtimes", "said"),
    [
        ((DOWN,), SAID),
        ((FAILING,), BUSY),
        ((DOWN, FAILING), f"{SAID}; {BUSY}"),
        ((DOWN, WELL), None),
        ((DOWN, replace(WELL, models=frozenset({"other"}))), SAID),
        ((replace(DOWN, models=frozenset({"other"})), WELL), None),
        ((replace(DOWN, unsupported={CHAT: frozenset({"logit_bias"})}), FAILING), BUSY),
        ((), None),
    ],
)
def test_runtimes_in_trouble_are_why_rows_that_a_worker_holds_do_not_run(
    runtimes: tuple[Serving, ...], said: str | None
) -> None:
    asking = replace(NEED, parameters=(("m", ("logit_bias",)),))
    assert why_held([("gpu-1", runtimes)], [asking]) == said


def test_another_worker_of_the_batch_with_a_sound_runtime_is_enough() -> None:
    assert why_held([("gpu-1", [DOWN]), ("gpu-2", [WELL])], [NEED]) is None


def test_a_worker_that_fetches_the_model_is_no_free_worker() -> None:
    pull = Pull(1, "ollama@here", "m", completed=50, total=10_000_000)
    fetching = worker(pulls=(pull,), free_slots=2)
    assert why(fetching) == "worker gpu-1 fetches model m: 0 % of 10.0 MB"
    assert why(fetching, worker(name="gpu-2")).startswith("about to start on the free worker")
    other = worker(pulls=(replace(pull, model="other"),))
    assert why(other).startswith("about to start on the free worker")
