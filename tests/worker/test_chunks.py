"""Embedding rows that share requests, through a worker's whole share of a batch, against a fake Ollama (B-05, B-10)."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from app.domain.rows import Reply, Row
from app.worker.agent import Agent
from executors.cancellation import CancelToken
from executors.runtimes.ollama import OllamaExecutor
from executors.settings import ExecutorSettings
from tests.fakes.control_plane import FakeControlPlane
from tests.fakes.ollama_engine import vector
from tests.fakes.ollama_process import ollama_server
from tests.fakes.runtime_process import RuntimeProcess

__all__ = ["ollama_server"]

ENDPOINT = "/v1/embeddings"
StartAgent = Callable[..., Agent]


class Executor(OllamaExecutor):
    """The real one; a test may have it fail in ways that it should not."""

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(ExecutorSettings(**settings), url)
        self.bug: Callable[[], list[Reply]] | None = None
        self.confused = False

    def execute_chunk(self, rows: Sequence[Row], *, timeout: float, cancelled: CancelToken) -> list[Reply]:
        if self.bug:
            return self.bug()
        return super().execute_chunk(rows, timeout=timeout, cancelled=cancelled)

    def can_coalesce_embedding(self, row: Row) -> bool:
        if self.confused:
            raise ValueError("confused")
        return super().can_coalesce_embedding(row)


@pytest.fixture
def process(ollama_server: Callable[..., RuntimeProcess]) -> RuntimeProcess:
    return ollama_server()


@pytest.fixture
def executor(process: RuntimeProcess) -> Iterator[Executor]:
    made = Executor(process.url)
    yield made
    made.close()


def lines_of(inputs: Sequence[object]) -> list[bytes]:
    return [
        json.dumps(
            {"custom_id": f"row-{n}", "method": "POST", "url": ENDPOINT, "body": {"model": "embed", "input": given}}
        ).encode()
        for n, given in enumerate(inputs)
    ]


def run(
    plane: FakeControlPlane, start: StartAgent, executor: Executor, inputs: Sequence[object], *, shard_rows: int = 100
) -> dict[int, dict[str, Any]]:
    """Run a batch to its end and give its lines."""
    plane.give_batch(lines_of(inputs), shard_rows=shard_rows, endpoint=ENDPOINT)
    start([executor])
    plane.wait(lambda: len(plane.stored) == plane.rows and set(plane.states().values()) == {"reported"})
    return {row: json.loads(line) for row, line in plane.stored.items()}


def sizes(process: RuntimeProcess) -> list[int]:
    """How many texts each request had."""
    asked = [body["input"] for body in process.stats()["bodies"] if body["path"] == "/api/embed" and body["input"]]
    return [len(given) if isinstance(given, list) else 1 for given in asked]


def embedding_of(line: dict[str, Any]) -> object:
    return line["response"]["body"]["data"][0]["embedding"]


def test_rows_of_a_shard_share_requests_and_each_gets_its_own_answer(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    texts = [f"text {n}" for n in range(200)]
    stored = run(plane, start_agent, executor, texts)
    assert [embedding_of(stored[n]) for n in range(200)] == [vector(text) for text in texts]
    assert sorted(sizes(process), reverse=True) == [64, 64, 36, 36]
    assert process.stats()["max_at_once"] == 1


def test_rows_of_different_shards_do_not_share(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    run(plane, start_agent, executor, [f"text {n}" for n in range(12)], shard_rows=4)
    assert sizes(process) == [4, 4, 4]


def test_a_bad_row_fails_alone_and_a_list_goes_alone(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    inputs: list[object] = ["a", "b", "{{bad}}", "d", ["x", "y"], "f", "g"]
    stored = run(plane, start_agent, executor, inputs)
    assert {row for row, line in stored.items() if line["response"]["status_code"] != 200} == {2}
    assert [one["embedding"] for one in stored[4]["response"]["body"]["data"]] == [vector("x"), vector("y")]
    assert [embedding_of(stored[n]) for n in (0, 1, 3, 5, 6)] == [vector(text) for text in "abdfg"]


@pytest.mark.parametrize("bug", ["raises", "too few", "other things"])
def test_a_defect_costs_the_rows_of_its_request_and_no_others(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, bug: str
) -> None:
    def explode() -> list[Reply]:
        if bug == "raises":
            raise RecursionError("a bug")
        return [] if bug == "too few" else [None] * 5  # type: ignore[list-item]

    executor.bug = explode
    stored = run(plane, start_agent, executor, ["a", "b", ["list", "alone"], "d", "e"])
    codes = {row: (line["error"] or {}).get("code") for row, line in stored.items()}
    assert codes == {0: "INTERNAL_ERROR", 1: "INTERNAL_ERROR", 2: None, 3: "INTERNAL_ERROR", 4: "INTERNAL_ERROR"}


def test_an_executor_that_cannot_judge_a_row_has_it_alone(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    executor.confused = True
    stored = run(plane, start_agent, executor, ["a", "b", "c"])
    assert all(line["error"] is None for line in stored.values())
    assert sizes(process) == [1, 1, 1]


def test_a_size_that_is_none_means_no_sharing(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    executor.embedding_chunk_size = "many"  # type: ignore[assignment]
    run(plane, start_agent, executor, ["a", "b", "c"])
    assert sizes(process) == [1, 1, 1]


def test_a_runtime_that_dies_under_a_request_costs_no_row(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    """One row kills the runner: its neighbours are answered, and it fails by itself."""
    stored = run(plane, start_agent, executor, ["a", "{{cut}}", "c"])
    assert {row for row, line in stored.items() if line["error"] is not None} == {1}
    assert stored[1]["error"]["code"] == "runtime_unavailable"


def test_a_stop_cuts_a_request_and_hands_none_of_its_rows_in(
    plane: FakeControlPlane, start_agent: StartAgent, executor: Executor, process: RuntimeProcess
) -> None:
    plane.give_batch(lines_of(["{{hang}}", "b", "c"]), shard_rows=100, endpoint=ENDPOINT)
    agent = start_agent([executor], drain_seconds=0.2)
    process.wait_for(lambda stats: stats["in_flight"] == 1)
    agent.on_signal()
    assert agent.join(30)
    assert plane.stored == {}
    process.wait_for(lambda stats: stats["in_flight"] == 0)
