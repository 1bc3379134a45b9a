"""A cursor over events skips none, even when a transaction with a lower number commits late (PROTOCOL 9)."""

from typing import Any

import pytest
from sqlmodel import Session

from app.db import events
from app.db.store import Store
from tests.databases import Databases
from tests.migrated import migrate


def write(store: Store, session: Session, **fields: Any) -> None:
    given = {"type": "batch.created", "subject": "batch_1", "actor": "test", "org_id": "org_1"} | fields
    events.record(session, now=store.now(session), **given)


def read(store: Store, seq: int = 0, **seen_by: Any) -> list[str]:
    by = {"org_id": "org_1", "operator": False} | seen_by
    with store.read() as session:
        return [event.subject for event in events.after(session, seq, **by)]


def test_events_come_in_order_and_behind_the_cursor(store: Store) -> None:
    with store.begin() as session:
        for number in range(5):
            write(store, session, subject=f"batch_{number}")
    with store.read() as session:
        found = events.after(session, 0, org_id="org_1", operator=False, limit=3)
        assert [event.subject for event in found] == ["batch_0", "batch_1", "batch_2"]
        assert read(store, found[-1].seq or 0) == ["batch_3", "batch_4"]
        assert events.last_seq(session) == (found[-1].seq or 0) + 2


def test_an_org_sees_its_own_events_and_the_operator_those_of_nobody_too(store: Store) -> None:
    with store.begin() as session:
        write(store, session, subject="mine")
        write(store, session, subject="theirs", org_id="org_2")
        write(store, session, subject="nobody", org_id=None)
    assert read(store) == ["mine"]
    assert read(store, operator=True) == ["mine", "nobody"]


def test_an_event_of_a_rolled_back_transaction_never_happened(store: Store) -> None:
    def write_and_fail() -> None:
        with store.begin() as session:
            write(store, session)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert read(store) == []


@pytest.mark.postgres
def test_a_reader_waits_for_a_lower_number_that_commits_late(postgres_databases: Databases) -> None:
    store = Store(postgres_databases.copy_of(migrate))
    try:
        with store.begin() as early:
            write(store, early, subject="early")
            with store.begin() as late:
                write(store, late, subject="late")
            assert read(store) == [], "the cursor would pass the number of a transaction that still runs"
        assert read(store) == ["early", "late"]
    finally:
        store.close()
