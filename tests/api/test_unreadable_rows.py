"""One row with a JSON column that cannot be read hides no other row, and stops no claim, sweep or page of figures."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import Column, Table, Text, func, select, text, update
from sqlmodel import SQLModel

from app.cli import server_checks
from app.cli.connection import Address
from app.db import types
from app.db.tables import Batch
from app.db.types import Json
from app.domain.workers import Phase
from app.schemas.claims import ReleaseRequest
from app.schemas.workers import Heartbeat
from app.services import tokens
from app.services.context import Yard
from app.sweeps import batch_expiry, heartbeat_sweeper, lease_expiry, requeue, retention
from tests.hands import Hands, do_control_work
from tests.served import Served, rows

LISTS = ("/v1/batches", "/v1/files", "/v1/pools", "/v1/workers", "/v1/tokens", "/v1/webhook_endpoints", "/v1/models")
COLUMNS = [
    (table, column)
    for table in SQLModel.metadata.sorted_tables
    for column in table.columns
    if isinstance(column.type, Json)
]
SWEEPS = (batch_expiry, heartbeat_sweeper, lease_expiry, requeue, retention)


def ids(http: httpx.Client, path: str) -> list[Any]:
    answer = http.get(path, params={"limit": 100} if path != "/v1/pools" else {})
    assert answer.status_code == 200, answer.text
    return [row.get("id") or row["name"] for row in answer.json()["data"]]


def nested(column: Column[Any]) -> str:
    """An object or an array, as the column wants, of what it does not want."""
    return '{"k": [{"a": null}]}' if isinstance(column.type, Json) and column.type.shape is dict else "[[1]]"


def bad(yard: Yard) -> str:
    """What cannot be read; PostgreSQL takes only JSON, and that may be of another kind."""
    return '"text"' if yard.store.dialect == "postgresql" else "{bad"


@contextmanager
def broken(yard: Yard, table: Table, column: Column[Any], value: str, where: str = "1 = 1") -> Iterator[None]:
    """The column of one row holds `value`, until the end of the block."""
    (key,) = table.primary_key.columns
    raw = column.cast(Text)
    with yard.store.begin() as session:
        connection = session.connection()
        found = connection.execute(select(key, raw).where(text(where)).order_by(key).limit(1)).first()
        assert found is not None, f"no row of {table.name}"
        _set(connection, table, column, key == found[0], value)
    yield
    with yard.store.begin() as session:
        _set(session.connection(), table, column, key == found[0], found[1])


def _set(connection: Any, table: Table, column: Column[Any], where: Any, value: str | None) -> None:
    typed = "CAST(:value AS json)" if connection.dialect.name == "postgresql" else ":value"
    connection.execute(update(table).where(where).values({column.name: text(typed).bindparams(value=value)}))


@pytest.fixture
def at_work(served: Served) -> Iterator[tuple[Served, Hands]]:
    """A service with a row in every table: batches of each state, workers, keys, endpoints, events."""
    sdk = served.client()
    made = sdk.files.create(file=("input.jsonl", rows(4)), purpose="batch")
    for number in range(2):
        sdk.batches.create(
            input_file_id=made.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"n": str(number)}
        )
    do_control_work(served)
    spare, hands = Hands(served, "gpu1"), Hands(served, "gpu2")
    hands.work()
    do_control_work(served)
    many = sdk.files.create(file=("input.jsonl", rows(600)), purpose="batch")
    sdk.batches.create(input_file_id=many.id, endpoint="/v1/chat/completions", completion_window="24h")
    sdk.batches.create(input_file_id=many.id, endpoint="/v1/chat/completions", completion_window="24h")
    do_control_work(served)
    served.key("read")
    with served.http() as http:
        endpoint = {"name": "w", "url": "https://example.com/w", "event_types": ["batch.completed"]}
        http.post("/v1/webhook_endpoints", json=endpoint).raise_for_status()
    for sweep in SWEEPS:
        sweep.run_once(served.yard, 10)
    with served.yard.store.begin() as session:
        insert = "INSERT INTO sweep_state (name, last_run_at, runner) VALUES ('test', 1, 'x')"
        session.connection().execute(text(insert))
    yield served, hands
    for each in (spare, hands):
        each.close()
    sdk.close()


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_no_bad_value_of_any_column_hides_a_row_or_stops_the_service(
    at_work: tuple[Served, Hands], inside: bool
) -> None:
    served, hands = at_work
    yard = served.yard
    wheres = {
        "api_token": "name = 'test' AND CAST(scopes AS TEXT) LIKE '%read%'",
        "batch": "state = 'validated'",  # what it waits for is read in its needs
        "worker": "name = 'gpu1'",
    }
    with served.http() as http:
        before = {path: ids(http, path) for path in LISTS}
        events = len(ids(http, "/v1/events"))
        assert all(before.values()), before
        for table, column in COLUMNS:
            value = nested(column) if inside else bad(yard)
            with broken(yard, table, column, value, wheres.get(table.name, "1 = 1")):
                what = f"{table.name}.{column.name}"
                for path in LISTS:
                    assert ids(http, path) == before[path], what
                assert len(ids(http, "/v1/events")) >= min(events, 100), what
                assert http.get("/metrics").status_code == 200, what
                assert http.get("/readyz").status_code == 200, what
                for sweep in SWEEPS:
                    sweep.run_once(yard, 10)
                _, grants, _ = hands.claim(want_rows=1)
                assert grants, what
                held = [grant.lease_id for grant in grants]
                beat = Heartbeat(boot_id=hands.boot_id, phase=Phase.READY, leases=held)
                assert set(hands.plane.heartbeat(hands.worker_id, beat, timeout_seconds=30).leases) == set(held), what
                hands.plane.release(ReleaseRequest(worker_id=hands.worker_id, leases=held))
        found = {"batch.meta", "batch.requirements", "worker.progress"}
        found |= set() if inside else {"worker.sample", "event.data"}
        assert set(http.get("/readyz").json()["unreadable_columns"]) >= found


NEEDS = ('{"k": 1}', '{"k": {"endpoint": 1, "models": ["m"]}}', '{"k": {"endpoint": "e", "models": [1]}}')


@pytest.mark.parametrize("value", [None, *NEEDS])
def test_a_claim_passes_over_a_batch_whose_needs_cannot_be_read(
    at_work: tuple[Served, Hands], value: str | None
) -> None:
    served, hands = at_work
    table = SQLModel.metadata.tables["batch"]
    with broken(served.yard, table, table.columns["requirements"], value or bad(served.yard), "state = 'validated'"):
        hands.work()
        with served.yard.store.read() as session:
            states = select(Batch.state, func.count()).group_by(Batch.state)
            assert dict(session.connection().execute(states).all()) == {"completed": 2, "finalizing": 1, "validated": 1}
        with served.http() as http:
            assert len(ids(http, "/v1/batches")) == 4


def test_rows_that_must_not_run_are_not_run_when_nobody_knows_which(at_work: tuple[Served, Hands]) -> None:
    served, hands = at_work
    table = SQLModel.metadata.tables["job"]
    where = "kind = 'shard' AND state = 'queued'"
    with broken(served.yard, table, table.columns["rejected"], bad(served.yard), where):
        _, grants, _ = hands.claim()
        refused = [grant for grant in grants if grant.rejected]
        assert len(refused) == 1
        grant = refused[0]
        assert [row.row for row in grant.rejected] == [*range(grant.first_row, grant.first_row + grant.rows)]
        assert {row.code for row in grant.rejected} == {"INTERNAL_ERROR"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("meta", '{"a": 1}'),
        ("errors", '[{"a": 1}]'),
        ("usage", '{"input_tokens": "many"}'),
        ("top_errors", '[{"code": 1}]'),
        ("row_errors", '[{"code": 1}]'),
        ("models", "[1]"),
    ],
)
def test_a_batch_with_a_wrong_value_inside_is_listed(at_work: tuple[Served, Hands], column: str, value: str) -> None:
    served, _ = at_work
    table = SQLModel.metadata.tables["batch"]
    with served.http() as http, broken(served.yard, table, table.columns[column], value, "state = 'completed'"):
        assert len(ids(http, "/v1/batches")) == 4
        assert f"batch.{column}" in http.get("/readyz").json()["unreadable_columns"]


@pytest.mark.parametrize(
    ("table", "column", "where", "path"),
    [
        ("batch", "meta", "1 = 1", "/v1/batches/{id}"),
        ("batch", "requirements", "1 = 1", "/v1/batches/{id}"),
        ("worker", "sample", "name = 'gpu1'", "/v1/workers/{id}"),
        ("webhook_endpoint", "event_types", "1 = 1", "/v1/webhook_endpoints/{id}"),
    ],
)
def test_asked_for_itself_it_is_an_error_that_names_the_column(
    at_work: tuple[Served, Hands], table: str, column: str, where: str, path: str
) -> None:
    served, _ = at_work
    found = SQLModel.metadata.tables[table]
    query = select(found.columns["id"]).where(text(where)).order_by(*found.primary_key.columns).limit(1)
    with served.yard.store.read() as session:
        (id_,) = session.connection().execute(query).one()
    with served.http() as http:
        assert http.get(path.format(id=id_)).status_code == 200
        with broken(served.yard, found, found.columns[column], bad(served.yard), where):
            answer = http.get(path.format(id=id_))
            assert (answer.status_code, answer.json()["error"]["code"]) == (500, "row_unreadable")
            assert f"{table}.{column}" in answer.json()["error"]["message"]
            assert answer.headers["x-should-retry"] == "false"
        assert http.get(path.format(id=id_)).status_code == 200


def test_a_batch_that_cannot_be_shown_can_be_cancelled(at_work: tuple[Served, Hands]) -> None:
    served, _ = at_work
    table = SQLModel.metadata.tables["batch"]
    with served.http() as http:
        newest = ids(http, "/v1/batches")[0]
        with broken(served.yard, table, table.columns["meta"], bad(served.yard), f"id = '{newest}'"):
            assert http.post(f"/v1/batches/{newest}/cancel").json()["status"] == "cancelling"


def test_a_key_whose_scopes_cannot_be_read_opens_nothing_and_says_why(at_work: tuple[Served, Hands]) -> None:
    served, _ = at_work
    key = served.key("read")
    table = SQLModel.metadata.tables["api_token"]
    with broken(served.yard, table, table.columns["scopes"], bad(served.yard), f"prefix = '{key[: tokens.SHOWN]}'"):
        with served.http(key) as http:
            answer = http.get("/v1/batches")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "row_unreadable")
        assert "api_token.scopes" in answer.json()["error"]["message"]


def test_the_log_says_it_once_and_doctor_says_where(
    at_work: tuple[Served, Hands], caplog: pytest.LogCaptureFixture
) -> None:
    served, _ = at_work
    types.unreadable_columns.discard("pool.timing")
    table = SQLModel.metadata.tables["pool"]
    with caplog.at_level(logging.ERROR), served.http() as http:
        with broken(served.yard, table, table.columns["timing"], bad(served.yard)):
            for _ in range(3):
                ids(http, "/v1/pools")
        said = [record for record in caplog.records if "pool.timing" in record.getMessage()]
        assert len(said) == 1
    found = server_checks.check_server(Address(served.url, served.admin, "environment"))
    told = [
        finding for finding in found if finding.part == "rows" and "timing" in finding.text and "pool" in finding.text
    ]
    assert [finding.level for finding in told] == ["warn"]
    assert "FROM pool" in told[0].do
