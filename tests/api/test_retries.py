"""Rows of an ended batch that run again: the new batch, its input, and the results of both put together."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from openai.types import Batch

from app.domain.rows import Reply, RowError, RowErrorCode
from tests.hands import ANSWER, Hands, do_control_work
from tests.served import Served, rows

TOO_LONG = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}'
REPLIES = {
    0: Reply(status=400, body=TOO_LONG),
    3: Reply(error=RowError(RowErrorCode.REQUEST_TIMEOUT, "it took long")),
    5: Reply(status=429, body=b'{"error":{"message":"slow down","code":"busy"}}'),
    8: Reply(status=500, body=b'{"detail":"oops"}'),
}
"""Of ten rows four fail, each in its own way."""


def mixed(row: int) -> Reply:
    return REPLIES.get(row % 10, ANSWER)


@contextmanager
def working(served: Served) -> Iterator[Callable[..., None]]:
    """Have a GPU worker do all there is, whenever it is called; and control work before and after."""
    with closing(Hands(served)) as hands:

        def work(reply: Callable[[int], Reply] = lambda _row: ANSWER) -> None:
            do_control_work(served)
            hands.work(reply)
            do_control_work(served)

        yield work


def create(served: Served, content: bytes, **ours: Any) -> str:
    client = served.client()
    file = client.files.create(file=content, purpose="batch")
    return client.batches.create(
        endpoint="/v1/chat/completions",
        completion_window="24h",
        input_file_id=file.id,
        metadata={"run": "night"},
        extra_body={"canary_rows": 0, **ours},
    ).id


def ended(served: Served, count: int = 20, reply: Callable[[int], Reply] = mixed, **ours: Any) -> str:
    batch_id = create(served, rows(count), **ours)
    with working(served) as work:
        work(reply)
    return batch_id


def retry(served: Served, batch_id: str, key: str | None = None, **wanted: Any) -> dict[str, Any]:
    answer = retried(served, batch_id, headers={"idempotency-key": key} if key else {}, **wanted)
    assert answer[0] == 200, answer
    return answer[1]


def retried(served: Served, batch_id: str, *, headers: dict[str, str] | None = None, **wanted: Any) -> tuple[int, Any]:
    with served.http() as http:
        answer = http.post(f"/v1/batches/{batch_id}/retry", json=wanted or None, headers=headers)
    return answer.status_code, answer.json()


def refusal(served: Served, batch_id: str, **wanted: Any) -> tuple[int, str, str]:
    status, body = retried(served, batch_id, **wanted)
    return status, body["error"]["code"], body["error"]["message"]


def results(served: Served, batch_id: str, *, with_retries: bool = True) -> list[dict[str, Any]]:
    with served.http() as http:
        answer = http.get(f"/v1/batches/{batch_id}/results", params={"with_retries": with_retries})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.content.splitlines()]


def batch(served: Served, batch_id: str) -> dict[str, Any]:
    with served.http() as http:
        found: dict[str, Any] = http.get(f"/v1/batches/{batch_id}").json()
    return found


def content(served: Served, file_id: str) -> bytes:
    return served.client().files.content(file_id).content


def numbers(lines: bytes) -> list[int]:
    return [int(json.loads(line)["custom_id"].removeprefix("row-")) for line in lines.splitlines()]


def codes(lines: list[dict[str, Any]]) -> list[object]:
    return [line["error"]["code"] if line["error"] else line["response"]["status_code"] for line in lines]


FAILED = [row for row in range(20) if row % 10 in REPLIES]


def test_failed_rows_run_again_as_a_batch_with_a_file_of_their_own(served: Served) -> None:
    batch_id = ended(served)
    new = served.client().post(f"/batches/{batch_id}/retry", cast_to=Batch).model_dump()
    assert (new["status"], new["gpuyard"]["retry_of"], new["id"] != batch_id) == ("validating", batch_id, True)
    assert batch(served, batch_id)["gpuyard"]["retried_by"] == [new["id"]]
    with served.http() as http:
        events = http.get("/v1/events", params={"subject": new["id"]}).json()["data"]
    assert (events[0]["type"], events[0]["data"]["retry_of"]) == ("batch.created", batch_id)

    written = content(served, new["input_file_id"])
    assert written.splitlines() == [line for row, line in enumerate(rows(20).splitlines()) if row in FAILED]
    file = served.client().files.retrieve(new["input_file_id"])
    assert (file.purpose, file.bytes, file.expires_at is not None) == ("batch", len(written), True)

    with working(served) as work:
        work()
    assert batch(served, new["id"])["request_counts"] == {"total": 8, "completed": 8, "failed": 0}
    merged = results(served, batch_id)
    assert [line["custom_id"] for line in merged] == [f"row-{row}" for row in range(20)]
    assert codes(merged) == [200] * 20
    assert codes(results(served, batch_id, with_retries=False)).count(200) == 12
    assert batch(served, batch_id)["request_counts"] == {"total": 20, "completed": 12, "failed": 8}


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ({"codes": ["400 invalid_request_error context_length_exceeded"]}, [0]),
        ({"codes": ["busy", "500"]}, [5, 8]),
        ({"codes": ["request_timeout"]}, [3]),
        ({"rows": "failed"}, [0, 3, 5, 8]),
        ({"rows": "all"}, list(range(10))),
    ],
)
def test_rows_are_chosen_by_how_they_failed(
    served_on_sqlite: Served, wanted: dict[str, Any], chosen: list[int]
) -> None:
    new = retry(served_on_sqlite, ended(served_on_sqlite, 10), **wanted)
    assert numbers(content(served_on_sqlite, new["input_file_id"])) == chosen


def test_of_each_row_the_latest_success_counts_else_the_latest_failure(served: Served) -> None:
    """The first retry fails again in other ways, but for row 3; a retry of it, and one of row 0 alone, come after."""
    first = ended(served, 10)
    second = retry(served, first)["id"]
    with working(served) as work:
        work(lambda row: ANSWER if row == 1 else REPLIES[8])
        third = retry(served, second)["id"]
        work(lambda row: ANSWER if row == 1 else REPLIES[5])
        assert codes(results(served, first)) == [429, 200, 200, 200, 200, 200, 200, 200, 429, 200]
        fourth = retry(served, first, codes=["400"])["id"]
        work()
        last = retry(served, first, rows="all")["id"]
        work(lambda _row: REPLIES[0])
    merged = results(served, first)
    assert [line["custom_id"] for line in merged] == [f"row-{row}" for row in range(10)]
    assert codes(merged) == [200, 200, 200, 200, 200, 200, 200, 200, 400, 200]
    assert batch(served, first)["gpuyard"]["retried_by"] == [second, fourth, last]
    assert batch(served, second)["gpuyard"]["retried_by"] == [third]
    assert [line["custom_id"] for line in results(served, second)] == ["row-0", "row-3", "row-5", "row-8"]


def test_a_retry_that_still_runs_changes_no_results(served: Served) -> None:
    first = ended(served, 10)
    retry(served, first)
    assert results(served, first) == results(served, first, with_retries=False)
    do_control_work(served)
    assert results(served, first) == results(served, first, with_retries=False)


def test_it_runs_as_the_batch_did_unless_told_otherwise(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    with served.http() as http:
        assert http.post("/v1/pools", json={"name": "lab"}).status_code == 200
    batch_id = ended(served, 10, priority=7, group="g", unsupported_parameters="drop")
    same, other = (
        retry(served, batch_id, **wanted)
        for wanted in (
            {},
            {"pool": "lab", "priority": 0, "group": "h", "metadata": {"run": "2"}, "completion_window": "2h"}
            | {"canary_rows": 5, "unsupported_parameters": "fail"},
        )
    )

    def told(found: dict[str, Any]) -> list[object]:
        ours = ("pool", "priority", "group", "canary_rows", "unsupported_parameters")
        return [found[name] for name in ("endpoint", "completion_window", "metadata")] + [
            found["gpuyard"][name] for name in ours
        ]

    assert told(same) == told(batch(served, batch_id))
    endpoint = "/v1/chat/completions"
    assert told(other) == [endpoint, "2h", {"run": "2"}, "lab", 0, "h", 5, "fail"]


def test_the_same_call_again_makes_one_batch(served: Served) -> None:
    batch_id = ended(served, 10)
    first = retry(served, batch_id, key="k")
    files = len(served.client().files.list().data)
    assert retry(served, batch_id, key="k")["id"] == first["id"]
    assert len(served.client().files.list().data) == files
    status, body = retried(served, batch_id, headers={"idempotency-key": "k"}, rows="all")
    assert (status, body["error"]["code"]) == (409, "idempotency_key_reused")
    assert retry(served, batch_id)["id"] != first["id"]
    unseen = retry(served, batch_id, rows="all")
    again = retried(served, batch_id, headers={"x-stainless-retry-count": "1"}, rows="all")
    assert again[1]["id"] == unseen["id"]


def test_what_cannot_be_retried_is_refused_with_the_reason(served: Served) -> None:
    running = create(served, rows(1))
    status, code, message = refusal(served, running)
    assert (status, code) == (409, "batch_not_ended")
    assert "cancel it" in message
    invalid = create(served, rows(1) + b"no json\n")
    with working(served) as work:
        work()
    status, code, message = refusal(served, invalid)
    assert (status, code) == (409, "batch_failed")
    assert "line 2: This line is not parseable as valid JSON" in message
    assert refusal(served, running)[:2] == (409, "no_rows_to_retry")
    assert refusal(served, "batch_none")[:2] == (404, "batch_not_found")

    failed = ended(served, 10)
    status, code, message = refusal(served, failed, codes=["502"])
    assert (status, code) == (409, "no_rows_to_retry")
    assert "request_timeout" in message
    assert refusal(served, failed, rows="expired")[:2] == (409, "no_rows_to_retry")
    assert refusal(served, failed, rows="all", codes=["502"])[:2] == (400, "invalid_value")
    assert refusal(served, failed, completion_window="soon")[:2] == (400, "invalid_value")
    assert refusal(served, failed, pool="nowhere")[:2] == (400, "pool_not_found")
    assert {line.filename for line in served.client().files.list().data if "retry" in line.filename} == set()
    for key, answer in ((served.key("submit", org="other"), 404), (served.key("read"), 403)):
        with served.http(key) as http:
            assert http.post(f"/v1/batches/{failed}/retry").status_code == answer
    assert batch(served, failed)["gpuyard"]["retried_by"] == []


def test_without_the_error_file_all_rows_can_run_and_without_the_input_none(served: Served) -> None:
    batch_id = ended(served, 10)
    found = batch(served, batch_id)
    served.client().files.delete(found["error_file_id"])
    status, code, message = refusal(served, batch_id)
    assert (status, code) == (404, "file_gone")
    assert f"error file '{found['error_file_id']}'" in message
    assert "was deleted at 20" in message
    assert "--all" in message
    new = retry(served, batch_id, rows="all")
    assert numbers(content(served, new["input_file_id"])) == list(range(10))

    served.client().files.delete(found["input_file_id"])
    status, code, message = refusal(served, batch_id, rows="all")
    assert (status, code) == (404, "file_gone")
    assert f"input file '{found['input_file_id']}'" in message
    assert "Upload it again" in message


def test_an_input_that_expired_is_told_with_its_time(served: Served) -> None:
    batch_id = ended(served, 10)
    expires_at = served.client().files.retrieve(batch(served, batch_id)["input_file_id"]).expires_at
    assert expires_at is not None
    served.shift(seconds=expires_at)
    status, code, message = refusal(served, batch_id)
    assert (status, code) == (404, "file_gone")
    assert "expired at 20" in message


def test_why_rows_failed_is_in_the_batch_and_is_right_however_many_there_are(served: Served) -> None:
    """Lines of half a megabyte: a look at the first of them would count a few."""
    long = Reply(status=400, body=json.dumps({"error": {"code": "long"}, "x": "x" * 500_000}).encode())
    batch_id = ended(served, 60, lambda row: long if row % 3 else REPLIES[row % 10 if row % 10 in REPLIES else 0])
    errors = batch(served, batch_id)["gpuyard"]["top_errors"]
    assert (errors[0]["code"], errors[0]["count"]) == ("400 long", 40)
    assert sum(error["count"] for error in errors) == 60
    with served.http() as http:
        found = http.get(f"/v1/batches/{batch_id}/errors", params={"code": "429", "limit": 1}).json()
    assert (found["rows"], [error["code"] for error in found["data"]]) == (60, ["429 busy"])
    assert found["failed"] == [{"custom_id": "row-15", "code": "429 busy", "message": "slow down"}]
