"""What a JSON column gives of a value that cannot be read, and that nothing is lost by reading it."""

import pytest
from sqlalchemy import text, update
from sqlmodel import col, select

from app.db.store import Store
from app.db.tables import Batch, Job, Org, Pool, unreadable_in
from app.db.types import AnyText, Json, unreadable

NO_JSON = ["{bad", "", "[" * 99_999, '{"a":']
BAD = [*NO_JSON, '"text"', "5", "1.5", "true", "null", "[1]"]


def add_pool(store: Store, value: str) -> None:
    with store.begin() as session:
        session.add(Pool(name="good", slots={"batches": 2}, created_at=store.now(session)))
        session.add(Pool(name="bad", created_at=store.now(session)))
        session.flush()
        typed = "CAST(:value AS json)" if store.dialect == "postgresql" else ":value"
        bad = update(Pool).where(col(Pool.name) == "bad").values(slots=text(typed).bindparams(value=value))
        session.connection().execute(bad)


def raw(store: Store) -> str:
    with store.read() as session:
        return str(session.connection().scalar(text("SELECT slots FROM pool WHERE name = 'bad'")))


@pytest.mark.parametrize("value", BAD)
def test_a_value_that_cannot_be_read_is_an_empty_one_that_is_known_as_such(store: Store, value: str) -> None:
    if store.dialect == "postgresql" and value in NO_JSON:
        return  # it keeps no such value
    add_pool(store, value)
    with store.read() as session:
        found = {pool.name: pool for pool in session.exec(select(Pool))}
    assert found["good"].slots == {"batches": 2}
    assert found["bad"].slots == {}
    assert (unreadable(found["good"].slots), unreadable(found["bad"].slots)) == (False, True)
    assert unreadable_in(found["bad"]) == ["pool.slots"]
    assert unreadable_in(found["good"]) == []


def test_it_stays_as_it_is_until_somebody_sets_it(store: Store) -> None:
    add_pool(store, '"text"')
    before = raw(store)
    with store.begin() as session:
        pool = session.get_one(Pool, "bad")
        pool.max_load = 1.0
        session.add(pool)
    assert raw(store) == before
    with store.begin() as session:
        session.get_one(Pool, "bad").slots = {"batches": 1}
    with store.read() as session:
        assert unreadable_in(session.get_one(Pool, "bad")) == []


def test_null_is_a_value_only_where_it_may_be_missing(store: Store) -> None:
    with store.read() as session:
        for model, column in ((Batch, "meta"), (Batch, "usage"), (Batch, "top_errors")):
            kind = model.__table__.columns[column].type  # type: ignore[attr-defined]
            assert isinstance(kind, Json)
            assert kind.nullable
            assert kind.result_processor(session.get_bind().dialect, None)(None) is None
        kind = Job.__table__.columns["rejected"].type  # type: ignore[attr-defined]
        assert unreadable(kind.result_processor(session.get_bind().dialect, None)(None))


def test_text_that_looks_escaped_and_is_not_hides_no_row(store: Store) -> None:
    assert AnyText().process_result_value("\\{bad", store.engine.dialect) == "\\{bad"
    with store.begin() as session:
        session.add(Org(id="org_1", name="a\0b", created_at=store.now(session)))
        session.flush()
        session.connection().execute(text("UPDATE org SET name = :name"), {"name": "\\{bad"})
    with store.read() as session:
        assert session.exec(select(Org.name)).all() == ["\\{bad"]
