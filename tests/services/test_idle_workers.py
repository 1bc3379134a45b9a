"""PROTOCOL 6: who is idle, found without a look at those that are not."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, update
from sqlmodel import col

from app.db.idle import idle_workers
from app.db.tables import Worker
from app.services.context import Yard
from tests.yards import Machine, cancel, expire, later, machine, validated, worker


def idle(yard: Yard, *, limit: int = 16, but: str | None = None) -> set[str]:
    with yard.store.read() as session:
        since = yard.store.now(session) - timedelta(seconds=yard.timing.grace_seconds)
        return set(idle_workers(session, "gpu", seen_after=since, limit=limit, but=but))


def say_holds(yard: Yard, one: Machine, *, holds: bool) -> None:
    with yard.store.begin() as session:
        session.execute(update(Worker).where(col(Worker.id) == one.id).values(holds=holds))


def test_a_worker_is_idle_until_it_claims_and_again_when_its_last_lease_has_ended(yard: Yard) -> None:
    batch_id = validated(yard, rows=8)
    one, two = machine(yard, "one"), machine(yard, "two")
    assert idle(yard) == {one.id, two.id}
    (first,) = one.claim().grants
    (second,) = one.claim(running=batch_id).grants
    assert idle(yard) == {two.id}
    one.finish(batch_id, first)
    assert idle(yard) == {two.id}
    one.finish(batch_id, second)
    assert idle(yard) == {one.id, two.id}
    assert idle(yard, but=two.id) == {one.id}


@pytest.mark.parametrize("word", ["beat", "claim", "hello"])
def test_whatever_a_worker_says_next_tells_that_its_lease_was_ended_without_it(yard: Yard, word: str) -> None:
    batch_id = validated(yard)
    one = machine(yard)
    one.claim()
    cancel(yard, batch_id)
    later(yard, 301)
    assert expire(yard) == 1
    says: dict[str, Callable[[], object]] = {"beat": one.beat, "claim": one.claim, "hello": one.hello}
    says[word]()
    assert not worker(yard, one.id).holds


def test_the_leases_decide_where_the_column_is_behind(yard: Yard) -> None:
    validated(yard)
    one, two = machine(yard, "one"), machine(yard, "two")
    one.claim()
    say_holds(yard, one, holds=False)
    assert idle(yard) == {two.id}


def test_a_few_that_were_given_something_just_now_hide_nobody(yard: Yard) -> None:
    validated(yard, rows=12)
    behind = [machine(yard, f"behind-{n}") for n in range(3)]
    last = machine(yard, "last")
    for one in behind:
        one.claim()
        say_holds(yard, one, holds=False)
    assert idle(yard, limit=1) == {last.id}


def test_the_look_goes_through_the_index_of_those_that_held_nothing(yard: Yard) -> None:
    if yard.store.dialect != "sqlite":
        pytest.skip("PostgreSQL chooses by the size of the table: `make bench-scale` measures it")
    seen: list[tuple[str, Any]] = []
    event.listen(yard.store.engine, "before_cursor_execute", lambda *call: seen.append((call[2], call[3])))
    idle(yard)
    statement, parameters = next(found for found in seen if "holds" in found[0])
    with yard.store.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert "ix_worker_idle" in str(plan)
