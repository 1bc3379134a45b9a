"""Where a reader of a batch's events learns that there will be no more (PROTOCOL 9)."""

from typing import Any

from sqlalchemy import event

from app.services import events
from app.services.context import Yard
from tests.yards import USER, Controller, batch, cancel, created


def test_a_batch_that_ends_between_the_two_questions_of_a_look_is_known_to_have_ended(yard: Yard) -> None:
    """Its state is asked for first. Who then finds its last event is not woken for another, as there is none."""
    batch_id = created(yard, rows=2)
    asked: list[str] = []

    def end_it(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
        if "FROM batch" in statement and not asked:
            asked.append(statement)
            cancel(yard, batch_id)
            Controller(yard).works()

    event.listen(yard.store.engine, "after_cursor_execute", end_it)
    look = events.of_batch(yard, USER, batch_id, 0)
    event.remove(yard.store.engine, "after_cursor_execute", end_it)
    assert asked
    assert batch(yard, batch_id).state == "cancelled"
    # SQLite shows one moment, in which it had not ended; PostgreSQL shows each question its own.
    assert look.last is ("batch.cancelled" in [found.type for found in look.events])
