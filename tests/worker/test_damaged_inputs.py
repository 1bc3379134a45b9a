"""A batch whose input changes on the disk after its validation: no prompt that nobody sent reaches a runtime."""

from collections.abc import Callable

import pytest
from openai import OpenAI

from app.checksums import checksum
from app.services import claim_answers, files
from tests.damaged import damage, flip
from tests.fakes.control_plane import FakeControlPlane
from tests.fakes.control_plane import rows as fake_rows
from tests.fakes.steered_executor import SteeredExecutor
from tests.served import Served
from tests.worker.test_share_inputs import StartAgent, finish
from tests.working import StartWorker, content, ended, sdk, served, start_worker, submit

__all__ = ["sdk", "served", "start_worker"]
ROWS = 900


def ran(served: Served, sdk: OpenAI, start_worker: StartWorker, change: Callable[[bytes], bytes]) -> SteeredExecutor:
    """Damage the input of a validated batch, and have a worker run it; the batch is the only one there is."""
    batch = submit(sdk, served, ROWS)
    key = files.content(served.yard, served.operator(), batch.input_file_id).blob_key
    damage(served.yard.blobs, key, change)
    runtime = SteeredExecutor()
    runtime.let_all()
    start_worker("gpu-1", runtime, max_concurrent_prompts=32)
    return runtime


@pytest.mark.parametrize("inline_bytes", [0, 128 * 1024])
def test_a_changed_row_fails_with_its_shard_and_every_other_one_is_answered(
    served: Served, sdk: OpenAI, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch, inline_bytes: int
) -> None:
    """Fetched by the worker, and brought by the claim."""
    monkeypatch.setattr(claim_answers, "CONTENT_BYTES", inline_bytes)
    runtime = ran(served, sdk, start_worker, lambda old: flip(old, old.index(b'"content": "700"') + 13))
    batch = ended(sdk, served, sdk.batches.list().data[0].id)
    counts = batch.request_counts
    assert counts is not None
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", ROWS, ROWS - 8, 8)
    shard = set(range(696, 704))
    assert sorted(runtime.started) == sorted(set(range(ROWS)) - shard)
    errors = content(sdk, batch.error_file_id)
    assert {line["error"]["code"] for line in errors} == {"input_damaged"}
    assert len(errors) == 8
    answered = [line["custom_id"] for line in content(sdk, batch.output_file_id)]
    assert answered == [f"row-{row}" for row in range(ROWS) if row not in shard]


def test_of_a_halved_input_the_rows_that_are_there_are_answered(
    served: Served, sdk: OpenAI, start_worker: StartWorker
) -> None:
    runtime = ran(served, sdk, start_worker, lambda old: old[: old.index(b'"row-450"')])
    batch = ended(sdk, served, sdk.batches.list().data[0].id)
    counts = batch.request_counts
    assert counts is not None
    assert (batch.status, counts.completed, counts.failed) == ("completed", 448, ROWS - 448)
    assert sorted(runtime.started) == list(range(448))


def test_what_was_damaged_on_its_way_is_fetched_once_more(
    plane: FakeControlPlane, runtime: SteeredExecutor, start_agent: StartAgent
) -> None:
    plane.give_batch(list(fake_rows(4)))
    (shard,) = plane.shards
    shard["input_sum"] = checksum(plane.input[shard["start"] : shard["end"]])
    shard["content"] = flip(plane.input, 40).decode()
    runtime.let_all()
    start_agent()
    finish(plane)
    assert len(plane.called("content")) == 1
    assert plane.called("report-failure") == []
