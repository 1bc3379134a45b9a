"""Batches, as the stock SDK uses them (OPENAI_CONTRACT 1.2 to 1.7, 1.10, 1.12)."""

import json
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Batch as SdkBatch
from sqlmodel import col, select, update

from app.db.tables import Batch, Event, Job
from tests.hands import ANSWER, REFUSED, Hands, do_control_work
from tests.served import Served, rows

STATUSES = {
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
}
CHAT: Any = "/v1/chat/completions"


@pytest.fixture
def client(served: Served) -> OpenAI:
    return served.client()


def upload(client: OpenAI, count: int = 3, **fields: Any) -> str:
    return client.files.create(file=("in.jsonl", rows(count, **fields)), purpose="batch").id


def create(client: OpenAI, file_id: str | None = None, **fields: Any) -> SdkBatch:
    given = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": file_id or upload(client)} | fields
    return client.batches.create(**given)


def refused(client: OpenAI, **fields: Any) -> openai.BadRequestError:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, **fields)
    return caught.value


def test_a_new_batch_validates_and_counts_nothing(served: Served) -> None:
    client = served.client()
    made = create(client, metadata={"a": "b"})
    assert made.id.startswith("batch_")
    assert (made.object, made.status, made.endpoint, made.completion_window) == ("batch", "validating", CHAT, "24h")
    assert made.expires_at == made.created_at + 86_400
    assert made.request_counts is not None
    assert made.request_counts.model_dump() == {"total": 0, "completed": 0, "failed": 0}
    assert made.metadata == {"a": "b"}
    for name in ("in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at"):
        assert getattr(made, name) is None
    assert made.output_file_id is made.error_file_id is made.errors is made.usage is None
    assert client.batches.retrieve(made.id) == made
    with served.yard.store.read() as session:
        job = session.exec(select(Job)).one()
        assert (job.kind, job.verb, job.batch_id, job.state) == ("control", "validate", made.id, "queued")
        assert "batch.created" in session.exec(select(Event.type).where(col(Event.subject) == made.id)).all()


@pytest.mark.parametrize("name", ["input_file_id", "endpoint", "completion_window"])
def test_t4_a_missing_argument_is_named(served_on_sqlite: Served, name: str) -> None:
    given = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": "file-1"}
    del given[name]
    with pytest.raises(openai.BadRequestError) as caught:
        served_on_sqlite.client().post("/batches", body=given, cast_to=object)
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", name)
    assert caught.value.type == "invalid_request_error"
    assert f"'{name}'" in caught.value.message


def test_t5_an_unknown_file_is_refused(client: OpenAI) -> None:
    error = refused(client, file_id="file-nope")
    assert (error.param, error.code) == ("input_file_id", "file_not_found")


def test_t6_a_file_of_another_purpose_is_refused(client: OpenAI) -> None:
    file = client.files.create(file=rows(1), purpose="user_data")
    error = refused(client, file_id=file.id)
    assert (error.param, error.code) == ("input_file_id", "invalid_file_purpose")


@pytest.mark.parametrize(
    "metadata",
    [{str(n): "x" for n in range(17)}, {"k" * 65: "x"}, {"k": "v" * 513}, {"k": 1}, {"k": None}, "text", [1]],
)
def test_t7_metadata_out_of_bounds_is_refused(served_on_sqlite: Served, metadata: Any) -> None:
    assert refused(served_on_sqlite.client(), metadata=metadata).param == "metadata"


def test_t7_metadata_is_measured_in_characters_and_kept(client: OpenAI) -> None:
    metadata = {"鍵" * 40: "値" * 512, "nul": "a\0b", "line": "\u2028"} | {str(n): "v" for n in range(13)}
    made = create(client, metadata=metadata)
    assert made.metadata == metadata
    assert client.batches.retrieve(made.id).metadata == metadata


@pytest.mark.parametrize("window", ["1h", "90m", "5s", "30d", "24h"])
def test_a_window_may_be_any_up_to_thirty_days(served_on_sqlite: Served, window: str) -> None:
    made = create(served_on_sqlite.client(), completion_window=window)
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86_400}[window[-1]]
    assert made.completion_window == window
    assert made.expires_at == made.created_at + int(window[:-1]) * unit


@pytest.mark.parametrize("window", ["", "0h", "31d", "24", "1w", "-1h", "24h ", "\uff11h", "99999999d"])
def test_a_window_of_another_form_is_refused(served_on_sqlite: Served, window: str) -> None:
    assert refused(served_on_sqlite.client(), completion_window=window).param == "completion_window"


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"pool": "nope"}, "pool"),
        ({"pool": "a\0b"}, "pool"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"group": "g" * 129}, "group"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 3599}}, "output_expires_after"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after"),
        ({"endpoint": "/v1/videos"}, "endpoint"),
        ({"input_file_id": "file-\0"}, "input_file_id"),
        ({"input_file_id": 7}, "input_file_id"),
    ],
)
def test_what_cannot_be_is_refused_by_name(served_on_sqlite: Served, extra: dict[str, Any], param: str) -> None:
    assert refused(served_on_sqlite.client(), extra_body=extra).param == param


def test_our_own_arguments_come_back_in_our_own_object(client: OpenAI) -> None:
    made = create(client, extra_body={"priority": 7, "group": "team\0x"})
    ours = made.model_dump()["gpuyard"]
    assert (ours["pool"], ours["priority"], ours["group"], ours["state"]) == ("gpu", 7, "team\0x", "validating")
    assert set(ours) >= {"shards", "rows_per_second", "eta_seconds", "workers", "top_errors", "waiting_reason"}


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("validating", None),
        ("validating", "cancelled"),
        ("validating", "expired"),
        ("validated", None),
        ("in_progress", None),
        ("in_progress", "cancelled"),
        ("in_progress", "expired"),
        ("finalizing", "completed"),
        ("finalizing", "cancelled"),
        ("completed", "completed"),
        ("failed", None),
        ("cancelled", "cancelled"),
        ("expired", "expired"),
    ],
)
def test_t8_t9_every_state_reads_as_one_of_openais(served: Served, state: str, outcome: str | None) -> None:
    client = served.client()
    made = create(client)
    with served.yard.store.begin() as session:
        values = {"state": state, "outcome": outcome, "shards": 1, "total": 3, "validated_at": session_now(served)}
        session.execute(update(Batch).values(values))
    with served.http() as http:
        raw = http.get(f"/v1/batches/{made.id}").json()
        parsed = SdkBatch.model_validate(raw, strict=True)
        assert parsed.status in STATUSES
        assert http.get("/v1/batches").json()["data"] == [raw]
    assert parsed.request_counts is not None
    assert parsed.request_counts.total == 3


def session_now(served: Served) -> Any:
    with served.yard.store.read() as session:
        return served.yard.store.now(session)


def test_t10_a_list_gives_every_batch_once_in_pages(served: Served) -> None:
    client = served.client()
    file_id = upload(client, 1)
    made = [create(client, file_id).id for _ in range(45)]
    with served.yard.store.begin() as session:
        session.execute(update(Batch).values(created_at=session_now(served)))
    pages = list(client.batches.list(limit=20).iter_pages())
    assert [batch.id for page in pages for batch in page.data] == made[::-1]
    assert [len(page.data) for page in pages] == [20, 20, 5]


@pytest.mark.parametrize(
    ("limit", "code", "message"),
    [
        (0, "integer_below_min_value", "below minimum value. Expected a value >= 1, but got 0 instead."),
        (101, "integer_above_max_value", "above maximum value. Expected a value <= 100, but got 101 instead."),
    ],
)
def test_t11_a_limit_out_of_bounds_is_refused(served_on_sqlite: Served, limit: int, code: str, message: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        served_on_sqlite.client().batches.list(limit=limit)
    assert (caught.value.param, caught.value.code) == ("limit", code)
    assert f"Invalid 'limit': integer {message}" in caught.value.message


def test_t12_a_cancel_of_a_fresh_batch_ends_it_and_a_second_one_changes_nothing(served: Served) -> None:
    client = served.client()
    made = create(client)
    assert client.batches.cancel(made.id).status == "cancelling"
    do_control_work(served)
    ended = client.batches.cancel(made.id)
    assert (ended.status, ended.output_file_id, ended.error_file_id) == ("cancelled", None, None)
    assert ended.request_counts is not None
    assert ended.request_counts.total == 0
    assert client.batches.retrieve(made.id) == ended


@pytest.mark.parametrize("state", ["completed", "failed", "expired"])
def test_t12_what_has_ended_is_not_cancelled_and_nobody_tries_again(served: Served, state: str) -> None:
    client = served.client()
    made = create(client)
    with served.yard.store.begin() as session:
        session.execute(update(Batch).values(state=state, outcome=None if state == "failed" else state))
    with pytest.raises(openai.ConflictError) as caught:
        client.batches.cancel(made.id)
    assert f"Cannot cancel a batch with status '{state}'." in caught.value.message
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_t13_t14_t18_a_batch_runs_and_every_row_is_in_one_of_two_files(served: Served) -> None:
    client = served.client()
    made = create(client, upload(client, 10))
    do_control_work(served)
    hands = Hands(served)
    waiting = client.batches.retrieve(made.id)
    assert waiting.status == "in_progress"
    assert "free" in waiting.model_dump()["gpuyard"]["waiting_reason"]
    hands.work(lambda row: REFUSED if row % 3 == 0 else ANSWER)
    with served.http() as http:
        running = http.get(f"/v1/batches/{made.id}/results")
        lines = running.text.splitlines()
        assert {json.loads(line)["custom_id"] for line in lines} == {f"row-{n}" for n in range(10)}
    do_control_work(served)
    hands.close()
    ended = client.batches.retrieve(made.id)
    assert (ended.status, ended.model) == ("completed", "m")
    assert ended.request_counts is not None
    assert ended.request_counts.model_dump() == {"total": 10, "completed": 6, "failed": 4}
    assert ended.usage is not None
    assert (ended.usage.total_tokens, ended.usage.input_tokens_details.cached_tokens) == (60, 12)
    found: dict[str, int] = {}
    for file_id, count in ((ended.output_file_id, 6), (ended.error_file_id, 4)):
        assert file_id is not None
        lines = client.files.content(file_id).text.splitlines()
        assert len(lines) == count
        found |= {json.loads(line)["custom_id"]: json.loads(line)["response"]["status_code"] for line in lines}
        assert client.files.retrieve(file_id).purpose == "batch_output"
    assert found == {f"row-{n}": 400 if n % 3 == 0 else 200 for n in range(10)}
    with served.http() as http:
        whole = http.get(f"/v1/batches/{made.id}/results")
        assert [json.loads(line)["custom_id"] for line in whole.text.splitlines()] == [f"row-{n}" for n in range(10)]
        assert "x-next-after" not in whole.headers


def test_t13_a_batch_whose_rows_all_failed_is_completed_without_an_output(served: Served) -> None:
    client = served.client()
    made = create(client)
    do_control_work(served)
    hands = Hands(served)
    hands.work(lambda _row: REFUSED)
    do_control_work(served)
    hands.close()
    ended = client.batches.retrieve(made.id)
    assert (ended.status, ended.output_file_id) == ("completed", None)
    assert ended.error_file_id is not None
    assert ended.request_counts is not None
    assert ended.request_counts.model_dump() == {"total": 3, "completed": 0, "failed": 3}


def test_a_bad_line_fails_the_batch_and_says_which(served: Served) -> None:
    client = served.client()
    file = client.files.create(file=rows(1) + b"{not json\n", purpose="batch")
    made = create(client, file.id)
    do_control_work(served)
    ended = client.batches.retrieve(made.id)
    assert ended.status == "failed"
    assert ended.errors is not None
    assert ended.errors.data is not None
    assert [(error.code, error.line) for error in ended.errors.data] == [("invalid_json_line", 2)]
    assert ended.failed_at is not None
    assert ended.usage is None


def test_t19_a_batch_outlives_the_delete_of_its_input(served: Served) -> None:
    client = served.client()
    file_id = upload(client)
    made = create(client, file_id)
    do_control_work(served)
    client.files.delete(file_id)
    hands = Hands(served)
    hands.work()
    do_control_work(served)
    hands.close()
    ended = client.batches.retrieve(made.id)
    assert ended.status == "completed"
    assert ended.output_file_id is not None
    assert len(client.files.content(ended.output_file_id).text.splitlines()) == 3


def test_t20_another_orgs_batch_is_not_there(served: Served) -> None:
    made = create(served.client())
    stranger = served.client(served.key("submit", org="other"))
    for call in (stranger.batches.retrieve, stranger.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    assert stranger.batches.list().data == []
    with pytest.raises(openai.BadRequestError):
        stranger.batches.list(after=made.id)
    with pytest.raises(openai.BadRequestError):
        create(stranger, made.input_file_id)
    with served.http(served.key("read", org="other")) as http:
        for tail in ("results", "events"):
            assert http.get(f"/v1/batches/{made.id}/{tail}").status_code == 404


def test_t16_a_create_that_the_sdk_sends_again_makes_one_batch(client: OpenAI) -> None:
    file_id = upload(client)
    first = create(client, file_id)
    again = create(client, file_id, extra_headers={"x-stainless-retry-count": "1"})
    assert again.id == first.id
    assert len(client.batches.list().data) == 1
    # Now that this key has seen it, an equal call is another one.
    assert create(client, file_id, extra_headers={"x-stainless-retry-count": "2"}).id != first.id


def test_t16_an_idempotency_key_makes_one_batch_for_a_day(client: OpenAI) -> None:
    file_id, header = upload(client), {"Idempotency-Key": "k-1"}
    first = create(client, file_id, extra_headers=header)
    client.batches.retrieve(first.id)
    assert create(client, file_id, extra_headers=header).id == first.id
    with pytest.raises(openai.ConflictError) as caught:
        create(client, file_id, completion_window="1h", extra_headers=header)
    assert caught.value.code == "idempotency_key_reused"
    assert create(client, file_id, extra_headers={"Idempotency-Key": "k-2"}).id != first.id
