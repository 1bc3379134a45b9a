"""A batch from its creation to its files, step by step."""

from app.services.context import Yard
from tests.yards import (
    Controller,
    assert_sound,
    batch,
    created,
    events,
    machine,
    result_files,
    shards,
    validated,
)


def test_a_batch_goes_its_whole_way(yard: Yard) -> None:
    """AR-01, B-25, B-29."""
    batch_id = created(yard, rows=6)
    assert (batch(yard, batch_id).state, batch(yard, batch_id).open_jobs) == ("validating", 1)
    assert_sound(yard)

    Controller(yard).works()
    assert (batch(yard, batch_id).state, batch(yard, batch_id).open_jobs) == ("validated", 2)
    assert [(job.first_row, job.rows) for job in shards(yard, batch_id)] == [(0, 4), (4, 2)]

    one = machine(yard)
    answer = one.claim(want=6)
    assert len(answer.grants) == 2
    assert (batch(yard, batch_id).state, batch(yard, batch_id).live) == ("in_progress", 2)
    assert_sound(yard)

    for grant in answer.grants:
        assert one.finish(batch_id, grant).ends == {grant.lease_id: "ended"}
    assert (batch(yard, batch_id).state, batch(yard, batch_id).outcome) == ("finalizing", "completed")
    assert_sound(yard)

    assert Controller(yard).works() == 1
    ended = batch(yard, batch_id)
    assert (ended.state, ended.completed, ended.failed, ended.total) == ("completed", 6, 0, 6)
    output, errors = result_files(yard, batch_id)
    assert [line["custom_id"] for line in output] == [f"row-{n}" for n in range(6)]
    assert errors == []
    assert_sound(yard)
    assert [kind for kind in events(yard, batch_id) if kind.startswith("batch.")] == [
        "batch.created",
        "batch.validated",
        "batch.in_progress",
        "batch.finalizing",
        "batch.completed",
    ]


def test_a_batch_of_one_row(yard: Yard) -> None:
    batch_id = validated(yard, rows=1)
    one = machine(yard)
    (grant,) = one.claim().grants
    one.finish(batch_id, grant)
    Controller(yard).works()
    assert batch(yard, batch_id).state == "completed"
    assert len(result_files(yard, batch_id)[0]) == 1


def test_a_batch_whose_rows_all_failed_is_completed_and_has_no_output(yard: Yard) -> None:
    batch_id = validated(yard, rows=3)
    one = machine(yard)
    (grant,) = one.claim().grants
    one.hand_in(batch_id, {grant.lease_id: [0, 1, 2]}, ends=[grant.lease_id], failed=True, answer="no")
    Controller(yard).works()
    ended = batch(yard, batch_id)
    assert (ended.state, ended.completed, ended.failed, ended.output_file_id) == ("completed", 0, 3, None)
    assert [line["error"]["code"] for line in result_files(yard, batch_id)[1]] == ["request_timeout"] * 3
