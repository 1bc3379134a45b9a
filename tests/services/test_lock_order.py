"""PROTOCOL 1, 5: every transaction locks worker, lease, job, batch, each by ascending id, and touches no content then.

On PostgreSQL alone: on SQLite the transaction is the lock.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.blobs.local import LocalBlobs
from app.db.store import Store
from app.schemas.segments import FirstRows
from app.services import presence, results
from app.services.context import Yard
from app.sweeps import batch_expiry, heartbeat_sweeper, lease_expiry, requeue, retention
from tests.databases import Databases
from tests.losses import lost, only
from tests.migrated import migrate
from tests.yards import (
    USER,
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


# Whoever passes by what is locked waits for nobody, and one row is in any order.
NEEDS_NO_ORDER = re.compile(r"SKIP LOCKED|WHERE \w+\.id = |AND worker\.name = ")


@dataclass
class Watched:
    """What transactions did: the tables each locked rows of, in the order of the first lock, and what none may."""

    done: list[list[str]] = field(default_factory=list)
    now: dict[int, list[str]] = field(default_factory=dict)
    unordered: list[str] = field(default_factory=list)
    contents: int = 0
    under_a_lock: list[str] = field(default_factory=list)

    def on_statement(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if found := LOCKS.search(statement):
            table = found.group(1) or found.group(2)
            met = self.now.setdefault(id(connection), [])
            if table not in met:
                met.append(table)
            if found.group(2) and not NEEDS_NO_ORDER.search(statement) and f"ORDER BY {table}.id" not in statement:
                self.unordered.append(statement)

    def on_end(self, connection: Any) -> None:
        if met := self.now.pop(id(connection), None):
            self.done.append(met)

    def on_content(self) -> None:
        self.contents += 1
        self.under_a_lock += [f"by who holds rows of {', '.join(met)}" for met in self.now.values()]


class Contents(LocalBlobs):
    """Contents that say when one is read, written, measured or deleted."""

    def __init__(self, root: Path, found: Watched) -> None:
        super().__init__(root)
        self._found = found

    def _path(self, key: str) -> Path:
        self._found.on_content()
        return super()._path(key)


@contextmanager
def watched(yard: Yard) -> Iterator[Watched]:
    """Watch the transactions of a yard."""
    found = Watched()
    listeners = (("before_cursor_execute", found.on_statement), ("commit", found.on_end), ("rollback", found.on_end))
    for name, listener in listeners:
        event.listen(yard.store.engine, name, listener)
    try:
        yield found
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
    with watched(yard) as found:
        a_whole_life(yard)
        a_cautious_life(yard)
        first_rows(yard)
    wrong = [tables for tables in found.done if tables != sorted(tables, key=ORDER.index)]
    assert wrong == []
    assert found.unordered == [], "rows of one kind are locked by ascending id"
    both = [tables for tables in found.done if {"worker", "lease"} <= set(tables)]
    assert both == [["worker", "lease"]], "the goodbye's: no hand-in, report or renewal writes a worker's row"
    met = {table for tables in found.done for table in tables}
    assert met == set(ORDER)
    assert ["lease", "job", "batch"] in found.done
    assert ["worker", "job", "batch"] in found.done


@pytest.mark.postgres
def test_no_content_is_touched_by_who_holds_a_lock(yard: Yard, tmp_path: Path) -> None:
    with watched(yard) as found:
        yard = replace(yard, blobs=Contents(tmp_path / "blobs", found))
        a_whole_life(yard)
        first_rows(yard)
        last = validated(yard)
        one = machine(yard)
        one.finish(last, only(one))
        Controller(yard).works()
        assert list(results.read(yard, USER, last).lines)
        for days in (3, 3):  # segments go first, and their contents a day after them
            later(yard, days * 86_400, listening=False)
            kept = retention.run_once(yard, 1000)
        assert kept["contents"]
    assert found.contents > 50
    assert found.under_a_lock == []
