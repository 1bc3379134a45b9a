"""A store of contents that hangs takes the threads of calls that read contents, and none of any other call's."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.threads import CONTENTS, WORKER_CONTENTS
from app.blobs import local
from app.schemas.claims import ReleaseRequest
from app.schemas.workers import Heartbeat
from tests.fakes.hanging_blobs import HangingBlobs
from tests.hands import Hands, do_control_work, hello
from tests.served import Served, rows

CALLS = 60
"""More than there are threads for everything together."""
SECONDS = 10.0


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
        until(lambda: contents.hanging >= CONTENTS.count)
        answers_still(http, hands)
    for thread in hung:
        thread.join(SECONDS)
    hands.close()


def test_claims_whose_rows_hang_hold_up_no_other_call(
    served: Served, content: tuple[str, HangingBlobs], until: Callable[..., None]
) -> None:
    _, contents = content
    hands = Hands(served)
    claim = {"worker_id": hands.worker_id, "boot_id": hands.boot_id, "request_id": "the-same"}
    with contents.away(), served.http() as http:
        hung = many(served, served.key("worker"), lambda http, _: http.post("/workers/claim", json=claim))
        until(lambda: contents.hanging >= WORKER_CONTENTS.count)
        answers_still(http, hands)
    for thread in hung:
        thread.join(SECONDS)
    hands.close()


def answers_still(http: httpx.Client, hands: Hands) -> None:
    """Assert that what needs no content is answered, again and again while all of those calls wait."""
    beat = Heartbeat(boot_id=hands.boot_id)
    for _ in range(10):
        hands.plane.heartbeat(hands.worker_id, beat, timeout_seconds=SECONDS)
        hands.plane.release(ReleaseRequest(worker_id=hands.worker_id, leases=[10**6]))
        assert hands.plane.register(hello("gpu1")).worker_id == hands.worker_id
        for path in ("/v1/batches", "/v1/files", "/v1/workers"):
            assert http.get(path, timeout=SECONDS).status_code == 200
