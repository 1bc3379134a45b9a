"""A list of batches asks for each thing once, however many batches wait (PROTOCOL 7)."""

from typing import Any

from sqlalchemy import event

from app.services import batches
from app.services.context import Yard
from tests.yards import USER, machine, validated


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
