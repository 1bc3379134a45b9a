"""PROTOCOL 1: every transaction locks worker, lease, job, batch in this order, whatever it is about.

On PostgreSQL alone: on SQLite the transaction is the lock.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.db.store import Store
from app.schemas.segments import FirstRows
from app.services import presence
from app.services.context import Yard
from app.sweeps import batch_expiry, heartbeat_sweeper, lease_expiry, requeue
from tests.databases import Databases
from tests.losses import lost, only
from tests.migrated import migrate
from tests.yards import (
    Controller,
    batch,
    cancel,
    created,
    later,
    machine,
    new_yard,
    validated,
)

ORDER = ["worker", "lease", "job", "batch"]
LOCKS = re.compile(r"^UPDATE (worker|lease|job|batch)\b|FROM (worker|lease|job|batch)\b.* FOR NO KEY UPDATE", re.DOTALL)


@contextmanager
def watched(yard: Yard) -> Iterator[list[list[str]]]:
    """Collect, a transaction each, the tables it locked rows of, in the order of the first lock."""
    done: list[list[str]] = []
    now: dict[int, list[str]] = {}

    def on_statement(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if found := LOCKS.search(statement):
            table = found.group(1) or found.group(2)
            met = now.setdefault(id(connection), [])
            if table not in met:
                met.append(table)

    def on_end(connection: Any) -> None:
        if met := now.pop(id(connection), None):
            done.append(met)

    listeners = (("before_cursor_execute", on_statement), ("commit", on_end), ("rollback", on_end))
    for name, listener in listeners:
        event.listen(yard.store.engine, name, listener)
    try:
        yield done
    finally:
        for name, listener in listeners:
            event.remove(yard.store.engine, name, listener)


def a_whole_life(yard: Yard) -> None:
    """Everything that workers, users and sweeps do, once."""
    one, two = machine(yard, "one", slots=5), machine(yard, "two", slots=5)
    batch_id = validated(yard, rows=24)
    first, second, third, fourth, *rest = [
        *one.claim(want=1).grants,
        *two.claim(want=1).grants,
        *one.claim(want=16).grants,
    ]
    one.beat(first.lease_id)
    one.hand_in(batch_id, {first.lease_id: [first.first_row]})
    one.finish(batch_id, third)
    one.fail(fourth.lease_id)
    two.release(second.lease_id)
    two.claim()
    for _ in range(4):
        later(yard, 10)
        two.beat()
    one.restarted().hello(held=[first.lease_id])
    assert rest
    cancelled, window = validated(yard), created(yard, window="1h")
    two.claim()
    cancel(yard, cancelled)
    two.bye(spooled=[second.lease_id])
    later(yard, 400, listening=False)
    presence.tick(yard)
    later(yard, 4000)
    for sweep in (batch_expiry, lease_expiry, heartbeat_sweeper, requeue):
        sweep.run_once(yard, 100)
    Controller(yard).works()
    cancel(yard, batch_id)
    Controller(yard).works()
    assert {batch(yard, found).state for found in (batch_id, cancelled)} == {"cancelled"}
    assert batch(yard, window).state == "expired"


def a_cautious_life(yard: Yard) -> None:
    """What a shard goes through that kills its workers."""
    batch_id = validated(yard, rows=40)
    busy = machine(yard, "busy")
    mine = only(busy)
    other = lost(machine(yard, "other"))
    assert busy.claim().no == "yield"
    grant = only(other)
    other.start_row(grant.lease_id, grant.first_row)
    other.hand_in(batch_id, {grant.lease_id: [grant.first_row]})
    other.start_row(grant.lease_id, grant.first_row + 1)
    only(other.dies())
    busy.finish(batch_id, mine)
    cancel(yard, batch_id)


def first_rows(yard: Yard) -> None:
    """What a batch goes through whose first rows fail: on one worker alike, on both, and each in its own way."""
    for kinds in (["400", "400"], ["400", "404"], ["400", None]):
        batch_id = validated(yard, rows=40, canary_rows=2, priority=9)
        crew = [machine(yard, name) for name in ("left", "right")]
        grants = [one.claim(want=1).grants[0] for one in crew]
        for one, grant, kind in zip(crew, grants, kinds, strict=True):
            word = FirstRows(kind=kind, rows=2, row=grant.first_row)
            one.hand_in(batch_id, {grant.lease_id: [grant.first_row]}, failed=True, first_rows=word)
        assert batch(yard, batch_id).outcome == ("failed" if len(set(kinds)) == 1 else None)
        if len(set(kinds)) > 1:
            cancel(yard, batch_id)
        later(yard, 400)
        lease_expiry.run_once(yard, 100)
        Controller(yard).works()


@pytest.fixture
def yard(postgres_databases: Databases, tmp_path: Path) -> Iterator[Yard]:
    store = Store(postgres_databases.copy_of(migrate))
    yield new_yard(store, tmp_path / "blobs")
    store.close()


@pytest.mark.postgres
def test_every_transaction_locks_in_one_order(yard: Yard) -> None:
    with watched(yard) as transactions:
        a_whole_life(yard)
        a_cautious_life(yard)
        first_rows(yard)
    wrong = [tables for tables in transactions if tables != sorted(tables, key=ORDER.index)]
    assert wrong == []
    both = [tables for tables in transactions if {"worker", "lease"} <= set(tables)]
    assert both == [["worker", "lease"]], "the goodbye's: no hand-in, report or renewal writes a worker's row"
    met = {table for tables in transactions for table in tables}
    assert met == set(ORDER)
    assert ["lease", "job", "batch"] in transactions
    assert ["worker", "job", "batch"] in transactions
