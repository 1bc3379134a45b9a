"""A batch for a model that nobody has, against the real API: it is fetched once, and everybody sees how far it is."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from executors.base import PullFailed
from tests.e2e.yard import until
from tests.fakes.pulling_executor import PullingExecutor
from tests.fakes.steered_executor import SteeredExecutor
from tests.served import Served
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit

__all__ = ["sdk", "served", "start_worker"]


@pytest.fixture
def runtime() -> Iterator[PullingExecutor]:
    found = PullingExecutor()
    yield found
    found.let_all()


def waits(served: Served, batch_id: str) -> str:
    with served.http() as http:
        return str(http.get(f"/v1/batches/{batch_id}").json()["gpuyard"]["waiting_reason"])


def shown(served: Served, name: str = "gpu-1") -> tuple[str, list[tuple[str, str]]]:
    with served.http() as http:
        worker = http.get(f"/v1/workers/{name}").json()
    return worker["activity"], [(pull["model"], pull["status"]) for pull in worker["pulls"]]


def happened(served: Served, subject: str) -> list[str]:
    with served.http() as http:
        found = http.get("/v1/events", params={"subject": subject}).json()["data"]
    return sorted({event["type"] for event in found if event["type"].startswith("model.")})


def test_a_model_that_nobody_has_is_fetched_and_the_batch_completes(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    start_worker("gpu-1", runtime, pull_models=True)
    batch = submit(sdk, served, 30, "m")
    runtime.wait(lambda: runtime.pulling == ["m"])
    until(lambda: "worker gpu-1 fetches model m" in waits(served, batch.id), "the batch says so")
    until(lambda: shown(served) == ("downloading_model", [("m", "pulling")]), "the worker says so")
    runtime.step((600_000_000, 1_300_000_000))
    until(lambda: waits(served, batch.id).endswith("46 % of 1.3 GB"), "how far it is")
    assert runtime.started == []
    runtime.step(None)
    runtime.let_all()
    batch = ended(sdk, served, batch.id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 30
    assert runtime.pulling == ["m"]
    until(lambda: shown(served) == ("idle", [("m", "pulled")]), "the worker is idle again")
    assert happened(served, batch.id) == ["model.pulled", "model.pulling"]
    assert "m" in [model.id for model in sdk.models.list()]


def test_a_pull_that_fails_ends_in_the_batchs_reason(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    start_worker("gpu-1", runtime, pull_models=True)
    batch = submit(sdk, served, 20, "nope")
    runtime.step(*[PullFailed("pull model manifest: file does not exist")] * 9)
    batch = ended(sdk, served, batch.id)
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (0, 20)
    errors = {(line["error"]["code"], line["error"]["message"]) for line in content(sdk, batch.error_file_id)}
    reason = "The model 'nope' could not be fetched: pull model manifest: file does not exist"
    assert errors == {("model_not_found", reason)}
    with served.http() as http:
        (top,) = http.get(f"/v1/batches/{batch.id}").json()["gpuyard"]["top_errors"]
    assert top["message"] == reason
    until(lambda: shown(served)[1] == [("nope", "failed")], "the worker says so")


def test_two_batches_are_one_pull(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    start_worker("gpu-1", runtime, pull_models=True, slots_batches=2)
    batches = [submit(sdk, served, 12, "m").id for _ in range(2)]
    runtime.wait(lambda: runtime.pulling)
    runtime.step((10, 100), None)
    runtime.let_all()
    assert [ended(sdk, served, batch_id).status for batch_id in batches] == ["completed"] * 2
    assert runtime.pulling == ["m"]


def test_a_batch_whose_model_is_there_runs_beside_a_pull(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    runtime.models = ["here"]
    runtime.let_all()
    start_worker("gpu-1", runtime, pull_models=True)
    waiting = submit(sdk, served, 12, "m")
    runtime.wait(lambda: runtime.pulling)
    assert ended(sdk, served, submit(sdk, served, 12, "here").id).status == "completed"
    until(lambda: shown(served)[1] == [("m", "pulling")], "the worker says so")
    runtime.step(None)
    assert ended(sdk, served, waiting.id).status == "completed"


def test_a_batch_of_two_models_runs_the_rows_whose_model_is_there(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    runtime.models = ["here"]
    runtime.let_all()
    start_worker("gpu-1", runtime, pull_models=True)
    batch = submit(sdk, served, 8, "here", "m")
    runtime.wait(lambda: runtime.pulling and len(runtime.finished) == 4)
    runtime.step(None)
    assert ended(sdk, served, batch.id).status == "completed"


def test_cancelling_the_only_batch_that_needs_it_cuts_the_pull(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    start_worker("gpu-1", runtime, pull_models=True)
    batch = submit(sdk, served, 12, "m")
    runtime.wait(lambda: runtime.pulling)
    sdk.batches.cancel(batch.id)
    runtime.wait(lambda: runtime.cut_pulls == ["m"])
    assert ended(sdk, served, batch.id).status == "cancelled"
    until(lambda: shown(served)[1] == [("m", "cancelled")], "the worker says so")


def test_a_worker_that_leaves_cuts_its_pull_and_another_takes_over(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    leaving = start_worker("gpu-1", runtime, pull_models=True)
    batch = submit(sdk, served, 12, "m")
    runtime.wait(lambda: runtime.pulling)
    leaving.on_signal()
    assert leaving.join(20)
    assert runtime.cut_pulls == ["m"]
    other = PullingExecutor()
    other.models = ["m"]
    other.let_all()
    start_worker("gpu-2", other)
    assert ended(sdk, served, batch.id).status == "completed"


def test_a_worker_that_may_not_fetch_models_leaves_the_batch_failed_with_its_lines(
    served: Served, sdk: OpenAI, start_worker: StartWorker, runtime: PullingExecutor
) -> None:
    start_worker("gpu-1", runtime)
    start_worker("gpu-2", SteeredExecutor())
    batch = ended(sdk, served, submit(sdk, served, 3, "m").id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert {error.code for error in batch.errors.data or []} == {"model_not_found"}
