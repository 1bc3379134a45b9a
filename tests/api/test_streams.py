"""Server-sent events of a batch: bounded in number, kept open by comments, without a thread each, over when it is."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.event import listen

from app.api import events as events_api
from app.api import streams
from app.api.main import close_listeners
from tests.databases import Databases
from tests.hands import do_control_work
from tests.migrated import migrate
from tests.served import Served, rows, serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(events_api, "TICK_SECONDS", 0.05)


def create(served: Served) -> str:
    client = served.client()
    file = client.files.create(file=("in.jsonl", rows(3)), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h").id


def messages(lines: Iterator[str]) -> Iterator[tuple[str, Any, str | None]]:
    """Type, data and id of each message."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id")
            fields = {}


def test_the_batch_itself_comes_whenever_it_has_changed_and_its_end_last(served: Served) -> None:
    batch_id = create(served)
    with served.http() as http, http.stream("GET", f"/v1/batches/{batch_id}/events?show=batch") as answer:
        found = messages(answer.iter_lines())
        kind, first, id_ = next(found)
        assert (kind, first["id"], first["status"], id_) == ("batch", batch_id, "validating", None)
        do_control_work(served)
        assert next(found)[1]["status"] == "in_progress"
        served.client().batches.cancel(batch_id)
        do_control_work(served)
        rest = [data for _, data, _ in found]
    assert rest[-1]["status"] == "cancelled"
    assert all(before != after for before, after in pairwise(rest)), "a batch that is as it was is not sent again"


def test_with_both_a_reader_goes_on_behind_the_last_event_and_has_the_batch_at_once(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    batch_id = create(served)
    served.client().batches.cancel(batch_id)
    do_control_work(served)
    with served.http() as http:
        url = f"/v1/batches/{batch_id}/events?show=both"
        with http.stream("GET", url) as answer:
            whole = list(messages(answer.iter_lines()))
        ids = [id_ for _, _, id_ in whole if id_ is not None]
        with http.stream("GET", url, headers={"last-event-id": ids[1]}) as answer:
            tail = list(messages(answer.iter_lines()))
    assert [id_ for _, _, id_ in tail if id_ is not None] == ids[2:]
    assert [data["status"] for kind, data, _ in tail if kind == "batch"] == ["cancelled"]


def test_a_quiet_stream_sends_comments(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_api, "QUIET_SECONDS", 0.1)
    served = served_on_sqlite
    batch_id = create(served)
    with served.http() as http, http.stream("GET", f"/v1/batches/{batch_id}/events") as answer:
        lines = answer.iter_lines()
        assert [line for line, _ in zip(lines, range(12), strict=False) if line.startswith(":")]


@pytest.fixture
def few(sqlite_databases: Databases, tmp_path: Path) -> Iterator[Served]:
    """A server that has three streams for an org, and so twelve for all."""
    with serving(sqlite_databases.copy_of(migrate), tmp_path / "data", org_streams=3) as running:
        yield running


def opened(few: Served, stack: ExitStack, key: str, count: int = 1) -> list[int]:
    """Open streams of a batch of the key's org, and keep them."""
    http = stack.enter_context(few.http(key))
    file = few.client(key).files.create(file=("in.jsonl", rows(3)), purpose="batch")
    asked = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    url = f"/v1/batches/{few.client(key).post('/batches', body=asked, cast_to=object)['id']}/events"  # type: ignore[index]
    return [stack.enter_context(http.stream("GET", url)).status_code for _ in range(count)]


def test_an_org_has_its_share_of_streams_and_a_closed_one_makes_room(few: Served, until: Callable[..., None]) -> None:
    url = f"/v1/batches/{create(few)}/events"
    with few.http() as http, ExitStack() as stack:
        open_ones = [stack.enter_context(http.stream("GET", url)) for _ in range(3)]
        assert {answer.status_code for answer in open_ones} == {200}
        refused = http.get(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_streams")
        assert "at most 3 open event streams" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"]
        assert "x-should-retry" not in refused.headers
        assert opened(few, stack, few.key("submit", org="other")) == [200]
        open_ones[0].close()
        until(lambda: few.app.state.in_flight._of_all["streams"] == 3)
        assert stack.enter_context(http.stream("GET", url)).status_code == 200


def test_a_process_that_ends_opens_no_more(few: Served) -> None:
    url = f"/v1/batches/{create(few)}/events"
    close_listeners(few.app)
    with few.http() as http:
        refused = http.get(url)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")


def test_all_orgs_together_have_no_more_streams_than_the_process_bears(few: Served) -> None:
    with ExitStack() as stack:
        found = [opened(few, stack, few.key("submit", org=f"org-{n}"), 3) for n in range(5)]
    assert found == [[200] * 3] * 4 + [[503] * 3]


def test_readers_that_all_come_at_once_get_no_more_streams_than_there_are(few: Served) -> None:
    """As after a restart: each takes its room before it waits for anything."""
    url = f"/v1/batches/{create(few)}/events"
    count = 30
    come, go = threading.Barrier(count), threading.Barrier(count)

    def read(_: int) -> int:
        with few.http() as http:
            come.wait(60)
            with http.stream("GET", url) as answer:
                go.wait(60)
                return answer.status_code

    with ThreadPoolExecutor(count) as readers:
        answered = list(readers.map(read, range(count)))
    assert Counter(answered) == {200: 3, 429: count - 3}


def test_a_key_that_is_revoked_ends_its_streams_and_no_other(served: Served) -> None:
    url = f"/v1/batches/{create(served)}/events"
    wanted = {"name": "reader", "scopes": ["read"]}
    with served.http() as admin, ExitStack() as stack:
        token = admin.post("/v1/tokens", json=wanted).json()
        theirs = stack.enter_context(served.http(token["secret"]))
        revoked = messages(stack.enter_context(theirs.stream("GET", url)).iter_lines())
        kept = messages(stack.enter_context(admin.stream("GET", url)).iter_lines())
        assert next(revoked) == next(kept)
        began = time.monotonic()
        admin.delete(f"/v1/tokens/{token['id']}").raise_for_status()
        assert list(revoked) == []
        assert time.monotonic() - began < 5
        served.client().batches.cancel(url.split("/")[3])
        do_control_work(served)
        assert "batch.cancelled" in {kind for kind, _, _ in kept}
        assert theirs.get(url).status_code == 401


def test_a_batch_is_read_once_for_all_who_watch_it(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    monkeypatch.setattr(streams, "SHOW_SECONDS", 0.05)
    served = served_on_sqlite
    url = f"/v1/batches/{create(served)}/events?show=batch"
    readers, passes = 20, 5
    asked: list[str] = []
    with ExitStack() as stack:
        http = stack.enter_context(served.http())
        opened = [stack.enter_context(http.stream("GET", url)).iter_lines() for _ in range(readers)]
        assert {next(lines) for lines in opened} == {"event: batch"}
        listen(served.yard.store.engine, "before_cursor_execute", lambda *now: asked.append(now[2]))
        until(lambda: sum("max(event.seq)" in statement for statement in asked) > passes)
    assert 0 < sum("FROM batch" in statement for statement in asked) < readers


def test_an_open_stream_costs_no_thread_and_all_end_with_the_process(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    url = f"/v1/batches/{create(served)}/events"
    count = 30
    with ExitStack() as stack:
        limits = httpx.Limits(max_connections=count + 5)
        headers = {"authorization": f"Bearer {served.admin}"}
        http = stack.enter_context(httpx.Client(base_url=served.url, headers=headers, limits=limits, timeout=30))
        before = threading.active_count()
        opened = [stack.enter_context(http.stream("GET", url)).iter_lines() for _ in range(count)]
        for lines in opened:
            next(lines)
        assert threading.active_count() - before < count / 2
        served.app.state.listeners._loop.call_soon_threadsafe(close_listeners, served.app)
        for lines in opened:
            assert list(lines) is not None
        assert http.get(url).status_code == 503
