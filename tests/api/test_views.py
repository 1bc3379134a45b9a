"""Pools, workers, models and events, as people and their tools read them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from sqlmodel import col, update

from app.api import streams
from app.db import events as events_sql
from app.db.tables import ApiToken, Batch, Worker
from app.schemas.segments import Progress
from tests.databases import Databases
from tests.hands import ANSWER, Hands, do_control_work
from tests.migrated import migrate
from tests.served import Served, rows, serving


def create(served: Served, **fields: Any) -> str:
    client = served.client()
    file = client.files.create(file=rows(3), purpose="batch")
    made = client.batches.create(
        endpoint="/v1/chat/completions", completion_window="24h", input_file_id=file.id, extra_body=fields
    )
    return made.id


def ours(served: Served, batch_id: str) -> dict[str, Any]:
    found: dict[str, Any] = served.client().batches.retrieve(batch_id).model_dump()["gpuyard"]
    return found


def test_the_default_pool_is_there_from_the_start(served: Served) -> None:
    with served.http() as http:
        (pool,) = http.get("/v1/pools").json()["data"]
    assert (pool["name"], pool["default"], pool["shared"]) == ("gpu", True, True)


def test_a_pool_is_made_changed_and_used(served: Served) -> None:
    with served.http() as http:
        made = http.post("/v1/pools", json={"name": "big", "slots": {"batches": 2}, "max_load": 1.5})
        assert made.json()["slots"] == {"batches": 2}
        assert http.post("/v1/pools", json={"name": "big"}).status_code == 409
        changed = http.patch("/v1/pools/big", json={"max_load": None, "slots": {"runs": 1}}).json()
        assert (changed["max_load"], changed["slots"]) == (None, {"batches": 2, "runs": 1})
        assert http.patch("/v1/pools/none", json={}).status_code == 404
        bad = {"timing": {"renew_seconds": 10, "grace_seconds": 5, "toleration_seconds": 300}}
        assert http.patch("/v1/pools/big", json=bad).json()["error"]["param"] == "timing"
        for name in ("control", "Big", "a.b", "", "-a"):
            assert http.post("/v1/pools", json={"name": name}).json()["error"]["param"] == "name"
    assert ours(served, create(served, pool="big"))["pool"] == "big"


def test_what_becomes_of_unsupported_parameters_is_one_of_two_words(served: Served) -> None:
    assert ours(served, create(served))["unsupported_parameters"] == "fail"
    assert ours(served, create(served, unsupported_parameters="drop"))["unsupported_parameters"] == "drop"
    with pytest.raises(openai.BadRequestError) as refused:
        create(served, unsupported_parameters="keep")
    assert refused.value.param == "unsupported_parameters"


def test_an_orgs_own_pool_is_its_own(served: Served) -> None:
    with served.http(served.key("admin", org="other")) as theirs:
        assert theirs.post("/v1/pools", json={"name": "shared-one"}).status_code == 403
        assert theirs.patch("/v1/pools/gpu", json={"max_load": 1}).status_code == 403
        assert theirs.post("/v1/pools", json={"name": "mine", "shared": False}).status_code == 200
        assert {pool["name"] for pool in theirs.get("/v1/pools").json()["data"]} == {"gpu", "mine"}
    with served.http() as http:
        assert {pool["name"] for pool in http.get("/v1/pools").json()["data"]} == {"gpu"}
        assert http.patch("/v1/pools/mine", json={}).status_code == 404
    with pytest.raises(openai.BadRequestError) as refused:
        create(served, pool="mine")
    assert refused.value.code == "pool_not_found"


def test_a_worker_is_listed_with_what_it_could_take(served: Served) -> None:
    hands = Hands(served, "gpu1", "llama", "qwen")
    with served.http() as http:
        (listed,) = http.get("/v1/workers").json()["data"]
        assert (listed["name"], listed["pool"], listed["state"], listed["no_lease"]) == ("gpu1", "gpu", "active", None)
        assert listed["slots"] == {"batches": {"total": 1, "free": 1}}
        assert listed["seen_seconds"] < 30
        assert http.get(f"/v1/workers/{hands.worker_id}").json()["name"] == "gpu1"
        assert http.get("/v1/workers/gpu1").json()["id"] == hands.worker_id
        assert http.get("/v1/workers/nobody").status_code == 404
        assert http.get("/v1/workers?pool=big").json()["data"] == []
        assert {model["id"] for model in http.get("/v1/models").json()["data"]} == {"llama", "qwen"}
        assert served.client().models.retrieve("llama").owned_by == "vllm"
    with served.http(served.key("read", org="other")) as stranger:
        assert stranger.get("/v1/workers").json()["data"] == []
        assert stranger.get("/v1/workers/gpu1").status_code == 404
    hands.close()


def test_workers_and_tokens_are_paged_and_each_is_on_one_page(served: Served) -> None:
    """Three workers that were made in one instant, as the tokens were: what is sorted by has equals."""
    hands = [Hands(served, f"gpu{number}") for number in (3, 1, 2)]
    with served.yard.store.begin() as session:
        session.execute(update(ApiToken).values(created_at=col(ApiToken.created_at) * 0 + 1000))
    with served.http() as http:
        for path in ("/v1/workers", "/v1/tokens"):
            whole = http.get(path).json()
            ids = [each["id"] for each in whole["data"]]
            pages = list(one_by_one(http, path))
            assert len(ids) > 2
            assert [page["data"][0]["id"] for page in pages] == ids
            assert (whole["first_id"], whole["last_id"], whole["has_more"]) == (ids[0], ids[-1], False)
            assert http.get(path, params={"after": "nobody"}).json()["error"]["param"] == "after"
            assert {http.get(path, params={"limit": limit}).status_code for limit in (0, 1001)} == {400}
        assert [each["name"] for each in http.get("/v1/workers").json()["data"]] == ["gpu1", "gpu2", "gpu3"]
    with served.http(served.key("admin", org="other")) as stranger:
        for path, id_ in (("/v1/workers", hands[0].worker_id), ("/v1/tokens", ids[0])):
            assert stranger.get(path, params={"after": id_}).status_code == 400
    for each in hands:
        each.close()


def one_by_one(http: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    """The pages of a list, an item each."""
    page: dict[str, Any] = {"has_more": True, "last_id": None}
    while page["has_more"]:
        page = http.get(path, params={"limit": 1} | ({"after": page["last_id"]} if page["last_id"] else {})).json()
        yield page


@pytest.mark.parametrize(("silent", "state"), [(51, "unreachable"), (61, "stale")])
def test_a_silent_worker_has_no_slots_and_says_so(served: Served, silent: int, state: str) -> None:
    hands = Hands(served)
    with served.yard.store.begin() as session:
        session.execute(update(Worker).values(last_seen_at=col(Worker.last_seen_at) - silent * 1000))
    with served.http() as http:
        (listed,) = http.get("/v1/workers").json()["data"]
        assert (listed["state"], listed["no_lease"]) == (state, "unreachable")
        assert listed["slots"]["batches"]["free"] == 0
        assert http.get("/v1/models").json()["data"] == []
    hands.close()


def test_a_batch_says_why_it_waits_until_a_worker_is_on_it(served: Served) -> None:
    batch_id = create(served)
    assert ours(served, batch_id)["waiting_reason"] is None
    do_control_work(served)
    assert ours(served, batch_id)["waiting_reason"] == "no worker of pool gpu is registered"
    hands = Hands(served)
    assert "about to start" in ours(served, batch_id)["waiting_reason"]
    granted, grants, path = hands.claim()
    working = ours(served, batch_id)
    assert (granted, working["workers"], working["waiting_reason"]) == (batch_id, 1, None)
    with served.http() as http:
        assert http.get("/v1/workers/gpu1").json()["slots"]["batches"] == {"total": 1, "free": 0}
    second = create(served)
    do_control_work(served)
    assert ours(served, second)["waiting_reason"] == "1 earlier batch of pool gpu first"
    for grant in grants:
        hands.finish(granted, grant, path, lambda _row: ANSWER)
    hands.close()


def test_events_are_listed_by_a_cursor(served: Served) -> None:
    batch_id = create(served)
    served.client().batches.cancel(batch_id)
    with served.http() as http:
        page = http.get("/v1/events", params={"subject": batch_id, "limit": 1}).json()
        assert ([event["type"] for event in page["data"]], page["has_more"]) == (["batch.created"], True)
        rest = http.get("/v1/events", params={"subject": batch_id, "after": page["last_id"]}).json()
        assert rest["data"][0]["type"] == "batch.cancelling"
        assert http.get("/v1/events", params={"after": str(10**18)}).json()["data"] == []
    with served.http(served.key("read", org="other")) as stranger:
        assert stranger.get("/v1/events", params={"subject": batch_id}).json()["data"] == []


def read_stream(http: httpx.Client, url: str, **more: Any) -> list[tuple[int, str]]:
    """Read a stream of events to its end: ids and types."""
    with http.stream("GET", url, **more) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(answer.iter_text()).split("\n\n")
    found = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            assert json.loads(fields["data"])["type"] == fields["event"]
            found.append((int(fields["id"]), fields["event"]))
    return found


def test_a_batchs_events_stream_until_it_has_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0.05)
    batch_id = create(served)
    with served.http() as http:
        with http.stream("GET", f"/v1/batches/{batch_id}/events") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("id: ")
            assert next(lines) == "event: batch.created"
            served.client().batches.cancel(batch_id)
            do_control_work(served)
            assert "event: batch.cancelled" in list(lines)
        whole = read_stream(http, f"/v1/batches/{batch_id}/events")
        kinds = [kind for _, kind in whole]
        assert kinds[0] == "batch.created"
        assert "batch.cancelled" in kinds
        tail = read_stream(http, f"/v1/batches/{batch_id}/events", headers={"last-event-id": str(whole[2][0])})
        assert tail == whole[3:]


@pytest.mark.postgres
def test_a_stream_does_not_end_while_its_last_event_may_still_come(
    postgres_databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has ended, but an older transaction still runs: the last event stands behind the cursor's horizon."""
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0.05)
    with (
        serving(postgres_databases.copy_of(migrate), tmp_path / "data") as served,
        served.http() as http,
        served.yard.store.begin() as older,
    ):
        batch_id = create(served)
        events_sql.record(older, now=served.yard.store.now(older), type="x", subject="x", actor="x")
        with served.yard.store.begin() as session:
            session.execute(update(Batch).values(state="failed"))
            events_sql.record(
                session,
                now=served.yard.store.now(session),
                type="batch.failed",
                subject=batch_id,
                actor="x",
                org_id=served.operator().org_id,
            )
        with http.stream("GET", f"/v1/batches/{batch_id}/events") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("id: ")
            older.rollback()
            assert "event: batch.failed" in list(lines)


def test_a_running_batch_shows_what_its_workers_told_and_counts_only_what_is_stored(served: Served) -> None:
    batch_id = create(served)
    do_control_work(served)
    hands = Hands(served)
    hands.claim()
    hands.plane.progress(Progress(worker_id=hands.worker_id, batch_id=batch_id, completed=2, failed=1))
    batch = served.client().batches.retrieve(batch_id).model_dump()
    assert batch["gpuyard"]["live"] == {"completed": 2, "failed": 1}
    assert (batch["request_counts"]["completed"], batch["request_counts"]["failed"]) == (0, 0)
    hands.close()
