"""A store of contents that hangs takes the threads of calls that read contents, and none of any other call's."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.threads import CONTENTS, USERS, WORKER_CONTENTS
from app.blobs import local
from app.schemas.claims import ReleaseRequest
from app.schemas.workers import Heartbeat
from tests.fakes.hanging_blobs import HangingBlobs
from tests.hands import Hands, do_control_work, hello
from tests.served import Served, rows

CALLS = 60
"""More than there are threads for everything together."""
SECONDS = 10.0
KEPT = 1
"""The thread of each kind that one org never gets while it has others."""


def many(served: Served, key: str, send: Callable[[httpx.Client, int], Any]) -> list[threading.Thread]:
    """Have many calls under way that hang, each in a thread."""

    def one(number: int) -> None:
        with served.http(key) as http, suppress(httpx.HTTPError):
            send(http, number)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(CALLS)]
    for thread in threads:
        thread.start()
    return threads


@pytest.fixture
def served(served_on_sqlite: Served) -> Served:
    return served_on_sqlite


@pytest.fixture
def content(served: Served, tmp_path: Path) -> tuple[str, HangingBlobs]:
    """The input file of a batch that is validated, and the store it lies in."""
    with served.client(served.key("submit")) as sdk:
        file = sdk.files.create(file=("in.jsonl", rows(8)), purpose="batch")
        sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        do_control_work(served)
    (marker,) = (tmp_path / "data").rglob(local.MARKER)
    contents = HangingBlobs(marker.parent)
    served.app.state.yard = replace(served.yard, blobs=contents)
    return file.id, contents


def test_downloads_that_hang_hold_up_no_other_call(
    served: Served, content: tuple[str, HangingBlobs], until: Callable[..., None]
) -> None:
    file_id, contents = content
    hands = Hands(served)
    with contents.away(), served.http() as http:
        hung = many(served, served.key("read"), lambda http, _: http.get(f"/v1/files/{file_id}/content"))
        until(lambda: contents.hanging >= CONTENTS.count - KEPT)
        answers_still(http, hands)
    for thread in hung:
        thread.join(SECONDS)
    hands.close()


def test_claims_whose_rows_hang_hold_up_no_other_call(
    served: Served, content: tuple[str, HangingBlobs], until: Callable[..., None]
) -> None:
    _, contents = content
    hands, other = Hands(served), Hands(served, "gpu2", "another-model")
    claim = {"worker_id": hands.worker_id, "boot_id": hands.boot_id, "request_id": "the-same"}
    with contents.away(), served.http() as http:
        hung = many(served, served.key("worker"), lambda http, _: http.post("/workers/claim", json=claim))
        until(lambda: contents.hanging >= WORKER_CONTENTS.count - KEPT)
        answers_still(http, hands)
        nothing = {"worker_id": other.worker_id, "boot_id": other.boot_id, "request_id": "another"}
        with served.http(served.key("worker")) as worker:
            answer = worker.post("/workers/claim", json=nothing, timeout=SECONDS)
        assert (answer.status_code, answer.json()["grants"]) == (200, [])
    for thread in hung:
        thread.join(SECONDS)
    hands.close()
    other.close()


def test_reports_of_damaged_input_hold_up_no_other_call(
    served: Served, content: tuple[str, HangingBlobs], until: Callable[..., None]
) -> None:
    _, contents = content
    hands = Hands(served)
    _, (grant, *_), _ = hands.claim()
    report = {"worker_id": hands.worker_id, "request_id": "r", "code": "input_damaged", "error": "it differs"}
    with contents.away(), served.http() as http, served.http(served.key("worker")) as worker:
        reports = report | {"lease_id": grant.lease_id}
        hung = many(served, served.key("worker"), lambda http, _: http.post("/workers/report-failure", json=reports))
        until(lambda: contents.hanging >= WORKER_CONTENTS.count - KEPT)
        answers_still(http, hands)
        other = report | {"lease_id": grant.lease_id, "code": "INTERNAL_ERROR"}
        assert worker.post("/workers/report-failure", json=other, timeout=SECONDS).status_code == 200
    for thread in hung:
        thread.join(SECONDS)
    hands.close()


def test_no_content_is_read_for_a_report_of_a_lease_that_has_ended(
    served: Served, content: tuple[str, HangingBlobs]
) -> None:
    _, contents = content
    hands = Hands(served)
    _, (grant, *_), _ = hands.claim()
    hands.plane.release(ReleaseRequest(worker_id=hands.worker_id, leases=[grant.lease_id]))
    report = {"worker_id": hands.worker_id, "request_id": "r", "code": "input_damaged", "error": "it differs"}
    with contents.away(), served.http(served.key("worker")) as http:
        answer = http.post("/workers/report-failure", json=report | {"lease_id": grant.lease_id}, timeout=SECONDS)
        assert answer.json()["leases"] == {str(grant.lease_id): "stale"}
    hands.close()


def test_workers_fetch_their_input_while_users_have_all_their_threads(
    served: Served, content: tuple[str, HangingBlobs]
) -> None:
    hands = Hands(served)
    _, (grant, *_), path = hands.claim()
    gate = threading.Event()
    loop = served.app.state.listeners._loop
    kinds = (USERS, CONTENTS)
    held = [asyncio.run_coroutine_threadsafe(threads.run(gate.wait), loop) for threads in kinds for _ in range(CALLS)]
    try:
        found = hands.plane.download(path, grant.start, grant.end, deadline_seconds=0)
        assert found == rows(8)[grant.start : grant.end]
    finally:
        gate.set()
        for each in held:
            each.result(SECONDS)
    with served.http(served.key("worker")) as older:
        assert older.get(f"/v1/files/{content[0]}/content").content == rows(8)
    hands.close()


def test_downloads_are_counted_before_anything_is_read(
    served: Served, content: tuple[str, HangingBlobs], until: Callable[..., None]
) -> None:
    """One that hangs counts; one above the bound is refused and does not wait for it; all are given back."""
    path = f"/v1/files/{content[0]}/content"
    contents, in_flight = content[1], served.app.state.in_flight
    in_flight._limits = replace(in_flight._limits, downloads=CONTENTS.count)
    with contents.away(), served.http() as http:
        hung = many(served, served.key("read"), lambda http, _: http.get(path))
        until(lambda: in_flight._of_all["downloads"] == CONTENTS.count)
        refused = http.get(path, timeout=SECONDS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_downloads")
    for thread in hung:
        thread.join(SECONDS)
    with served.http() as http:
        etag = http.head(path).headers["etag"]
        asked = [({}, 200), ({"if-none-match": etag}, 304), ({"range": "bytes=999999-"}, 416)]
        for headers, status in asked:
            assert http.get(path, headers=headers).status_code == status
        assert http.get("/v1/files/file-none/content").status_code == 404
    until(lambda: not in_flight._of_org)


def answers_still(http: httpx.Client, hands: Hands) -> None:
    """Assert that what needs no content is answered, again and again while all of those calls wait."""
    beat = Heartbeat(boot_id=hands.boot_id)
    for _ in range(10):
        hands.plane.heartbeat(hands.worker_id, beat, timeout_seconds=SECONDS)
        hands.plane.release(ReleaseRequest(worker_id=hands.worker_id, leases=[10**6]))
        assert hands.plane.register(hello("gpu1")).worker_id == hands.worker_id
        for path in ("/v1/batches", "/v1/files", "/v1/workers"):
            assert http.get(path, timeout=SECONDS).status_code == 200
