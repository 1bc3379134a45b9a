"""Why rows failed: the most frequent reasons, while a batch runs and after it."""

from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import update

from app.db.tables import Batch
from app.domain.rows import Reply, RowError, RowErrorCode
from app.services import row_errors
from tests.hands import ANSWER, Hands, do_control_work
from tests.served import Served, rows

TOO_LONG = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}'


def reply(row: int) -> Reply:
    """Of ten rows five are too long, two time out, and three are answered."""
    if row % 10 < 5:
        return Reply(status=400, body=TOO_LONG)
    return Reply(error=RowError(RowErrorCode.REQUEST_TIMEOUT, f"row {row} took long")) if row % 10 < 7 else ANSWER


def work(served: Served) -> None:
    """Run all rows as a worker."""
    with closing(Hands(served)) as hands:
        hands.work(reply)


def create(served: Served, count: int) -> str:
    client = served.client()
    file = client.files.create(file=rows(count), purpose="batch")
    batch = client.batches.create(
        endpoint="/v1/chat/completions", completion_window="24h", input_file_id=file.id, extra_body={"canary_rows": 0}
    )
    do_control_work(served)
    return batch.id


def errors(served: Served, batch_id: str, **asked: str | int) -> dict[str, Any]:
    with served.http() as http:
        answer = http.get(f"/v1/batches/{batch_id}/errors", params=asked)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_reasons_are_counted_while_a_batch_runs_and_after_it(served: Served) -> None:
    batch_id = create(served, 20)
    assert errors(served, batch_id) == {"object": "list", "rows": 0, "data": [], "failed": []}
    work(served)
    running = errors(served, batch_id)
    assert running["rows"] == 14
    assert [(each["code"], each["count"]) for each in running["data"]] == [
        ("400 invalid_request_error context_length_exceeded", 10),
        ("request_timeout", 4),
    ]
    assert running["data"][0]["message"] == "too long"
    do_control_work(served)
    assert served.client().batches.retrieve(batch_id).status == "completed"
    assert {**errors(served, batch_id), "data": None} == {**running, "data": None}


def test_of_a_batch_that_runs_only_some_megabytes_are_read(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = served_on_sqlite
    batch_id = create(served, 20)
    monkeypatch.setattr(row_errors, "MAX_BYTES", 1000)
    work(served)
    assert 0 < errors(served, batch_id)["rows"] < 14
    do_control_work(served)
    assert errors(served, batch_id)["rows"] == 14
    with served.yard.store.begin() as session:  # as if it had ended before reasons were counted at the end
        session.execute(update(Batch).values(row_errors=None))
    assert 0 < errors(served, batch_id)["rows"] < 14


def test_failed_rows_are_listed_while_a_batch_runs_and_after_it(served: Served) -> None:
    batch_id = create(served, 20)
    work(served)
    timeout = [{"custom_id": f"row-{n}", "code": "request_timeout", "message": f"row {n} took long"} for n in (5, 6)]
    for _ in range(2):
        found = errors(served, batch_id, code="request_timeout", limit=2)
        assert [(each["code"], each["count"]) for each in found["data"]] == [("request_timeout", 4)]
        assert found["failed"] == timeout
        assert len(errors(served, batch_id, limit=1000)["failed"]) == 14
        assert errors(served, batch_id, code="502", limit=2) == {**found, "data": [], "failed": []}
        do_control_work(served)


def test_a_batch_whose_error_file_was_deleted_keeps_its_reasons_and_lists_no_rows(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    batch_id = create(served, 10)
    work(served)
    do_control_work(served)
    client = served.client()
    file_id = client.batches.retrieve(batch_id).error_file_id
    assert file_id is not None
    client.files.delete(file_id)
    found = errors(served, batch_id, limit=10)
    assert (sum(each["count"] for each in found["data"]), found["failed"]) == (7, [])
    with served.http(served.key("read", org="other")) as http:
        answer = http.get(f"/v1/batches/{batch_id}/errors")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "batch_not_found")
