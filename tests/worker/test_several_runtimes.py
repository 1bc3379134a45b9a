"""Several runtimes beside one worker, against the real API: each is told by itself, and one may come late."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.e2e.yard import until
from tests.fakes.pulling_executor import PullingExecutor
from tests.served import Served
from tests.working import StartWorker, ended, sdk, served, start_worker, submit

__all__ = ["sdk", "served", "start_worker"]


@pytest.fixture
def runtimes() -> Iterator[list[PullingExecutor]]:
    """One runtime with the model `a`, and one with `b`."""
    found = [PullingExecutor(url=f"pulling:?models={model}") for model in "ab"]
    for runtime in found:
        runtime.let_all()
    yield found
    for runtime in found:
        runtime.let_all()


def told(served: Served) -> dict[str, Any]:
    with served.http() as http:
        runtimes = http.get("/v1/workers/gpu-1").json()["runtimes"]
    return {runtime["name"]: (runtime["alive"], runtime["models"]) for runtime in runtimes}


def waits(served: Served, batch_id: str) -> str:
    with served.http() as http:
        return str(http.get(f"/v1/batches/{batch_id}").json()["gpuyard"]["waiting_reason"])


def test_one_that_comes_up_later_takes_work_without_a_restart(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtimes: list[PullingExecutor]
) -> None:
    first, late = runtimes
    late.alive = False
    late.models = []  # nobody has seen it yet
    start_worker("gpu-1", *runtimes)
    assert ended(sdk, served, submit(sdk, served, 4, "a").id).status == "completed"
    batch = submit(sdk, served, 4, "b")
    assert f"{late.name} of worker gpu-1 is down" in waits(served, batch.id)
    late.models = ["b"]
    late.alive = True
    assert ended(sdk, served, batch.id).status == "completed"
    assert (len(first.started), len(late.started)) == (4, 4)
    assert told(served) == {first.name: (True, ["a", "a:latest"]), late.name: (True, ["b", "b:latest"])}


def test_one_that_goes_down_is_named_by_the_batch_that_waits_for_it_and_hides_no_other(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtimes: list[PullingExecutor]
) -> None:
    first, second = runtimes
    worker = start_worker("gpu-1", *runtimes)
    until(lambda: len(told(served)) == 2, "both are told")
    second.alive = False
    worker._probes.wake()
    until(lambda: not told(served)[second.name][0], "the worker says that it is down")
    batch = submit(sdk, served, 4, "b")
    assert f"{second.name} of worker gpu-1 is down" in waits(served, batch.id)
    assert ended(sdk, served, submit(sdk, served, 4, "a").id).status == "completed"
    assert told(served)[first.name][0]
    second.alive = True
    assert ended(sdk, served, batch.id).status == "completed"
