"""Hand-ins that the API meets a bug over, again and again, and an API that meets one over all of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from openai import OpenAI

from app.domain.rowsets import RowSet
from app.schemas.segments import HandInHeader
from app.worker import outbox
from tests.fakes.control_plane import FakeControlPlane, rows
from tests.fakes.gateway import Gateway, gateway
from tests.fakes.plane_answers import Answer
from tests.fakes.steered_executor import OK, SteeredExecutor
from tests.served import Served
from tests.worker.conftest import StartAgent
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit

__all__ = ["sdk", "served", "start_worker"]

Until = Callable[..., None]
HAND_INS = {"results", "upload-results"}


def rows_in(body: bytes) -> set[int]:
    header = HandInHeader.model_validate_json(body.partition(b"\n")[0])
    return {row for part in header.parts for row in RowSet.parse(part.rows)}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "TRY_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "MOST_BUGS", 2)


@pytest.fixture
def between(served: Served) -> Iterator[Gateway]:
    with gateway(served.url) as found:
        yield found


@pytest.fixture
def runtime() -> SteeredExecutor:
    found = SteeredExecutor()
    found.let_all()
    return found


def test_a_row_that_the_api_breaks_on_fails_alone_and_everything_else_comes_home(
    served: Served, sdk: OpenAI, start_worker: StartWorker, between: Gateway, runtime: SteeredExecutor
) -> None:
    runtime.answers[2] = lambda: replace(OK, body=b'{"text":"poison"}')
    between.breaks = lambda route, body: route in HAND_INS and b"poison" in body
    start_worker("gpu-1", runtime, server_url=between.url)
    batch = ended(sdk, served, submit(sdk, served, 24).id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 23, 1)
    (line,) = content(sdk, batch.error_file_id)
    assert (line["custom_id"], line["error"]["code"]) == ("row-2", "INTERNAL_ERROR")
    assert "a bug" in line["error"]["message"]
    assert sorted(runtime.started) == list(range(24)), "none ran twice"


def test_a_row_that_cannot_even_fail_is_left_to_the_shards_three_tries(
    served: Served, sdk: OpenAI, start_worker: StartWorker, between: Gateway, runtime: SteeredExecutor
) -> None:
    """Something is wrong with its place in the database, say. Another batch runs meanwhile."""
    between.breaks = lambda route, body: route in HAND_INS and b"row-2" in body
    start_worker("gpu-1", runtime, server_url=between.url)
    batch = submit(sdk, served, 8)
    for _ in range(20):
        ended(sdk, served, submit(sdk, served, 1).id)
        if sdk.batches.retrieve(batch.id).status not in {"in_progress", "finalizing"}:
            break
    done = ended(sdk, served, batch.id)
    assert done.request_counts is not None
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 7, 1)
    assert between.answered["report-failure"] == 3


def test_while_the_api_breaks_on_all_of_them_they_wait_and_nothing_fails(
    served: Served, sdk: OpenAI, start_worker: StartWorker, between: Gateway, runtime: SteeredExecutor, until: Until
) -> None:
    """Heartbeats and claims are answered all the while: a bug in what stores rows, say, until somebody mends it."""
    between.breaks = lambda route, _body: route in HAND_INS
    start_worker("gpu-1", runtime, server_url=between.url)
    batch = submit(sdk, served, 8)
    until(lambda: between.broke.total() > 50)  # all rows wait alone by now, and are tried in turn
    assert not between.arrived["report-failure"] + between.arrived["release"]
    between.breaks = lambda _route, _body: False
    done = ended(sdk, served, batch.id)
    assert done.request_counts is not None
    assert (done.status, done.request_counts.completed) == ("completed", 8)
    assert sorted(runtime.started) == list(range(8)), "none ran twice"


def test_a_worker_that_leaves_meanwhile_leaves_in_time_and_its_next_start_brings_them_home(
    served: Served, sdk: OpenAI, start_worker: StartWorker, between: Gateway, runtime: SteeredExecutor, until: Until
) -> None:
    between.breaks = lambda route, _body: route in HAND_INS
    first = start_worker("gpu-1", runtime, server_url=between.url, drain_seconds=0.5)
    batch = submit(sdk, served, 8)
    until(lambda: between.broke.total() > 20)
    first.on_signal()
    assert first.join(15)
    assert first.exit_code == 0
    between.breaks = lambda _route, _body: False
    start_worker("gpu-1", runtime, server_url=between.url)
    done = ended(sdk, served, batch.id)
    assert done.request_counts is not None
    assert (done.status, done.request_counts.completed) == ("completed", 8)
    assert sorted(runtime.started) == list(range(8)), "none ran twice"


def alone_in(plane: FakeControlPlane) -> set[int]:
    """Tell which rows were sent by themselves."""
    sent = [rows_in(call.raw) for call in plane.called("results")]
    return {row for found in sent if len(found) == 1 for row in found}


def test_a_row_that_is_the_last_of_its_hand_in_is_told_by_those_beside_it(
    plane: FakeControlPlane, start_agent: StartAgent, runtime: SteeredExecutor
) -> None:
    """Nothing else comes after it on a worker that has this batch alone."""
    plane.segment_seconds = 30.0
    plane.give_batch(list(rows(4)))
    runtime.answers[3] = lambda: replace(OK, body=b'{"text":"poison"}')
    plane.refuses = lambda call: Answer(500) if b"poison" in call.raw else None
    start_agent(max_concurrent_prompts=8)
    plane.wait(lambda: plane.states() == {1: "reported"})
    assert {row for row, line in plane.stored.items() if b"INTERNAL_ERROR" in line} == {3}


def test_an_api_that_breaks_on_all_of_them_is_asked_once_a_turn(
    plane: FakeControlPlane,
    start_agent: StartAgent,
    runtime: SteeredExecutor,
) -> None:
    plane.give_batch(list(rows(8)), shard_rows=8)
    plane.refuses = lambda call: Answer(500) if call.route == "results" else None
    start_agent(max_concurrent_prompts=8, progress_interval_seconds=1e-6)  # reported once a turn
    plane.wait(lambda: alone_in(plane) == set(range(8)))
    before, turns = len(plane.calls), len(plane.called("progress"))
    plane.wait(lambda: len(plane.called("progress")) > turns + 5)
    routes = [call.route for call in plane.calls[before:]]
    last_turns = routes[routes.index("progress") + 1 :]
    assert 0 < last_turns.count("results") <= last_turns.count("progress") + 1
    plane.refuses = lambda _call: None
    plane.wait(lambda: plane.states() == {1: "reported"})
    assert set(plane.stored) == set(range(8))
