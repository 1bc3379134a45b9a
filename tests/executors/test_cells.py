"""What becomes of a row at each server that was observed: one test a cell (docs/reference/runtimes.md)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.domain.rows import Reply, Row
from executors.runtimes.vllm import VLLMExecutor
from executors.settings import ExecutorSettings
from tests.executors import test_states
from tests.executors.cells import EMBEDDERS, EMBEDDINGS, NOT_TRIED, OTHERWISE, ROWS, SERVERS, STATES, Comes
from tests.executors.running import run
from tests.fakes.runtime_process import RuntimeProcess, start_runtime

HANGING_SECONDS = 0.5
PATIENCE_SECONDS = 20.0

Start = Callable[..., RuntimeProcess]


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Give a replica in a state, started once for all cells. One that blocked for good is started anew."""
    folder: Path = tmp_path_factory.mktemp("replicas")
    running: dict[tuple[str, str], RuntimeProcess] = {}

    def start(server: str, state: str = "ready") -> RuntimeProcess:
        if (server, state) not in running:
            running[server, state] = start_runtime(folder, "--like", server, "--state", state)
        running[server, state].reset()
        return running[server, state]

    yield start
    for runtime in running.values():
        runtime.kill()


def cells(table: dict[str, tuple[Callable[[], Row], dict[str, Comes]]]) -> list[object]:
    return [
        pytest.param(server, make, comes, id=f"{server}-{case.replace(' ', '-')}")
        for case, (make, at_each) in table.items()
        for server, comes in at_each.items()
    ]


@pytest.mark.parametrize(("server", "make", "comes"), cells(ROWS))
def test_a_row(replica: Start, runtime_server: Start, server: str, make: Callable[[], Row], comes: Comes) -> None:
    blocks = comes.code == "request_timeout"
    runtime = runtime_server("--like", server) if blocks else replica(server)
    check(runtime, make(), comes, timeout=HANGING_SECONDS if blocks else PATIENCE_SECONDS)


@pytest.mark.parametrize(("server", "make", "comes"), cells(EMBEDDINGS))
def test_an_embedding_row(replica: Start, server: str, make: Callable[[], Row], comes: Comes) -> None:
    check(replica(server, "embeddings"), make(), comes)


@pytest.mark.parametrize("case", OTHERWISE)
def test_a_row_at_a_server_that_was_started_otherwise(replica: Start, case: str) -> None:
    server, state, make, comes = OTHERWISE[case]
    check(replica(server, state), make(), comes)


def test_every_state_has_its_test() -> None:
    missing = [test for test in STATES.values() if not callable(getattr(test_states, test, None))]
    assert missing == []


def test_every_case_was_asked_of_every_server() -> None:
    asked = {(server, case) for case, (_, at_each) in ROWS.items() for server in at_each}
    assert asked == {(server, case) for server in SERVERS for case in ROWS} - NOT_TRIED
    asked = {(server, case) for case, (_, at_each) in EMBEDDINGS.items() for server in at_each}
    assert asked == {(server, case) for server in EMBEDDERS for case in EMBEDDINGS}


def check(runtime: RuntimeProcess, row: Row, comes: Comes, *, timeout: float = PATIENCE_SECONDS) -> Reply:
    """Run a row and compare all that is stored of it."""
    executor = VLLMExecutor(ExecutorSettings(), runtime.url)
    try:
        reply = run(executor, row, timeout=timeout)
    finally:
        executor.close()
    said = (reply.body or b"").decode("ascii") if reply.error is None else reply.error.message
    assert (reply.status, reply.error and reply.error.code) == (comes.status, comes.code), said
    assert comes.says in said
    assert reply.blame is comes.blame
    assert runtime.stats()["requests"] == comes.requests
    if reply.status is not None and reply.status >= 400:
        error = json.loads(said)["error"]
        assert isinstance(error["message"], str)
        assert error.keys() >= {"message", "type"}
    return reply
