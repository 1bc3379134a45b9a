"""A list of batches asks for each thing once, however many batches wait (PROTOCOL 7)."""

from typing import Any

from sqlalchemy import event

from app.schemas.workers import RuntimeInfo
from app.services import batches, worker_views
from app.services.context import Yard
from tests.yards import CHAT, USER, later, lease, machine, validated


def test_the_workers_of_a_pool_are_read_once_for_all_of_its_waiting_batches(yard: Yard) -> None:
    made = [validated(yard, rows=1) for _ in range(4)]
    machine(yard, models=["other"])
    asked: list[str] = []

    def on_statement(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(" ".join(statement.split()))

    event.listen(yard.store.engine, "before_cursor_execute", on_statement)
    try:
        listed = batches.listed(yard, USER).data
    finally:
        event.remove(yard.store.engine, "before_cursor_execute", on_statement)
    assert {batch.id for batch in listed} == set(made)
    assert all(batch.gpuyard.waiting_reason == "no worker of pool gpu serves model m now" for batch in listed)
    assert sum(" FROM worker " in statement for statement in asked) == 1


def test_a_batch_whose_workers_have_no_runtime_that_takes_rows_says_so_also_after_rows_were_done(yard: Yard) -> None:
    batch_id = validated(yard, rows=2)
    one = machine(yard, "one")
    (grant,) = one.claim().grants
    one.hand_in(batch_id, {grant.lease_id: [0]})
    later(yard, 1)

    def waits() -> str | None:
        return batches.retrieve(yard, USER, batch_id).gpuyard.waiting_reason

    assert waits() is None
    down = RuntimeInfo(name="vllm@here", kind="vllm", alive=False, reason="refused", models=["m"], endpoints=[CHAT])
    one.beat(grant.lease_id, runtimes=[down])
    assert waits() == "vllm@here of worker one is down (refused)"
    one.beat(grant.lease_id, runtimes=[down.model_copy(update={"alive": True, "reason": None})])
    assert waits() is None


def test_why_rows_failed_with_their_shard_counts_the_rows_that_it_ended_and_no_others(yard: Yard) -> None:
    batch_id = validated(yard, rows=7)  # shards of four rows
    one = machine(yard, "one", slots=2)

    def errors() -> list[tuple[str, int]]:
        return [(top.code, top.count) for top in batches.retrieve(yard, USER, batch_id).gpuyard.top_errors]

    first, second = one.claim(want=8).grants
    one.hand_in(batch_id, {first.lease_id: [0]})
    one.fail(second.lease_id)
    assert errors() == []
    one.beat(first.lease_id)
    one.fail(first.lease_id)
    for _ in range(2):
        again = {grant.first_row: grant for grant in one.claim(want=8).grants}
        one.fail(again[0].lease_id)
        if 4 in again:
            one.finish(batch_id, again[4])
    assert errors() == [("INTERNAL_ERROR", 3)]


def test_who_runs_all_that_it_has_slots_for_is_free_for_no_other_batch_though_it_may_claim_the_next(yard: Yard) -> None:
    running = validated(yard, rows=2)
    one = machine(yard, "one")
    one.claim()
    one.claim(running=running)  # nothing more of it, and nothing else so far
    following = validated(yard, rows=1)
    assert batches.retrieve(yard, USER, following).gpuyard.waiting_reason == "1 earlier batch of pool gpu first"
    shown = worker_views.show(yard, USER, "one")
    assert (shown.slots["batches"].free, shown.no_lease) == (0, "slots")
    (grant,) = one.claim().grants
    assert lease(yard, grant.lease_id).batch_id == following


def test_that_other_work_goes_first_is_shown_before_that_all_slots_are_taken(yard: Yard) -> None:
    """R-34."""
    one = machine(yard, "one")
    validated(yard, rows=8)
    one.claim()
    urgent = validated(yard, rows=8, priority=1)
    one.claim()
    validated(yard, rows=8, priority=2)
    assert one.claim(running=urgent).no == "yield"
    assert worker_views.show(yard, USER, "one").no_lease == "yield"
