"""The agent against the real API, services and database: what one side means is what the other understands."""

import time
from pathlib import Path

import pytest
from openai import OpenAI
from sqlmodel import col, select

from app.db.tables import Job, Lease
from app.domain.jobs import JobKind
from app.domain.rows import Blame, Reply, RowError, RowErrorCode
from tests.fakes.steered_executor import SteeredExecutor
from tests.served import Served
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit

__all__ = ["sdk", "served", "start_worker"]


def leases(served: Served) -> set[str]:
    """The states of all shards' leases."""
    with served.yard.store.read() as session:
        of_shards = select(col(Lease.state)).join(Job).where(col(Job.kind) == JobKind.SHARD)
        return set(session.exec(of_shards).all())


def test_a_batch_runs_to_its_end(served: Served, sdk: OpenAI, start_worker: StartWorker) -> None:
    runtime = SteeredExecutor()
    runtime.let_all()
    start_worker("gpu-1", runtime)
    batch = ended(sdk, served, submit(sdk, served, 50).id)
    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed) == (50, 50)
    assert [line["custom_id"] for line in content(sdk, batch.output_file_id)] == [f"row-{n}" for n in range(50)]
    assert sorted(runtime.started) == list(range(50))


def test_a_cancel_cuts_what_runs_and_keeps_what_is_finished(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    runtime = SteeredExecutor()
    start_worker("gpu-1", runtime)
    batch = submit(sdk, served, 20)
    runtime.wait(lambda: len(runtime.running) == 4)
    runtime.let(0, 1)
    runtime.wait(lambda: len(runtime.started) == 6)
    sdk.batches.cancel(batch.id)
    runtime.wait(lambda: len(runtime.cut) == 4)
    batch = ended(sdk, served, batch.id)
    assert batch.status == "cancelled"
    assert [line["custom_id"] for line in content(sdk, batch.output_file_id)] == ["row-0", "row-1"]
    assert len(content(sdk, batch.error_file_id)) == 18


def test_a_drained_worker_s_rows_are_finished_by_another(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    first, second = SteeredExecutor(), SteeredExecutor()
    second.let_all()
    leaving = start_worker("gpu-1", first)
    batch = submit(sdk, served, 16)
    first.wait(lambda: len(first.running) == 4)
    leaving.on_signal()
    first.let_all()
    assert leaving.join(20)
    start_worker("gpu-2", second)
    batch = ended(sdk, served, batch.id)
    assert batch.status == "completed"
    assert [line["custom_id"] for line in content(sdk, batch.output_file_id)] == [f"row-{n}" for n in range(16)]
    assert sorted(first.finished + second.finished) == list(range(16))


def test_two_workers_share_one_batch_and_no_row_runs_twice(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    runtimes = [SteeredExecutor(), SteeredExecutor()]
    for number, runtime in enumerate(runtimes):
        start_worker(f"gpu-{number}", runtime)
    batch = submit(sdk, served, 64)
    for runtime in runtimes:
        runtime.wait(lambda runtime=runtime: len(runtime.running) == 4)  # type: ignore[misc]
    for runtime in runtimes:
        runtime.let_all()
    batch = ended(sdk, served, batch.id)
    assert batch.status == "completed"
    assert sorted(runtimes[0].finished + runtimes[1].finished) == list(range(64))


def test_a_second_worker_of_a_name_that_is_held_is_turned_away(
    served: Served, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker("gpu-1", SteeredExecutor())
    with pytest.raises(SystemExit):
        start_worker("gpu-1", SteeredExecutor(), state_dir=tmp_path / "elsewhere")
    with pytest.raises(SystemExit):
        start_worker("gpu-3", SteeredExecutor(), pool="no-such-pool")


def test_shards_of_a_runtime_that_is_down_come_back_at_no_cost_and_another_worker_does_them(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    sick, healthy = SteeredExecutor(), SteeredExecutor()
    away = Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, "no connection"), blame=Blame.RUNTIME)
    sick.answers = dict.fromkeys(range(16), lambda: away)
    sick.let_all()
    start_worker("gpu-1", sick, runtime_down_seconds=0.5)
    batch = submit(sdk, served, 16)
    deadline = time.monotonic() + 20
    while (states := leases(served)) != {"released"}:
        assert time.monotonic() < deadline, states
        time.sleep(0.05)
    healthy.let_all()
    start_worker("gpu-2", healthy)
    batch = ended(sdk, served, batch.id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed) == ("completed", 16)
    with served.yard.store.read() as session:
        jobs = session.exec(select(Job).where(col(Job.kind) == JobKind.SHARD)).all()
    assert {(job.attempts, job.losses) for job in jobs} == {(0, 0)}
