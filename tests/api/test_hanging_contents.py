"""A store of contents that hangs takes the threads of calls that read contents, and none of any other call's."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from app.api.threads import CONTENTS, WORKER_CONTENTS
from app.blobs import local
from app.db.inputs import input_blob
from app.schemas.claims import ReleaseRequest
from app.schemas.workers import Heartbeat
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


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Have a content hang as a file of a dead mount does, until the end of the block."""
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    try:
        yield
    finally:
        gone = path.rename(path.with_name("gone"))
        path.write_bytes(content)
        os.close(os.open(gone, os.O_RDWR | os.O_NONBLOCK))
        gone.unlink()


def at_contents() -> int:
    """How many threads of the API are in a call into the store of contents now."""
    return sum(_is_at_contents(frame) for frame in sys._current_frames().values())


def _is_at_contents(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != local.__file__:
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def served(served_on_sqlite: Served) -> Served:
    return served_on_sqlite


@pytest.fixture
def content(served: Served, tmp_path: Path) -> tuple[str, Path]:
    """A batch that is validated, and where its input lies."""
    with served.client(served.key("submit")) as sdk:
        file = sdk.files.create(file=("in.jsonl", rows(8)), purpose="batch")
        sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        do_control_work(served)
        (batch,) = sdk.batches.list().data
    with served.yard.store.read() as session:
        (path,) = (tmp_path / "data").rglob(input_blob(session, batch.id))
    return file.id, path


def test_downloads_that_hang_hold_up_no_other_call(
    served: Served, content: tuple[str, Path], until: Callable[..., None]
) -> None:
    file_id, path = content
    hands = Hands(served)
    with hanging(path), served.http() as http:
        hung = many(served, served.key("read"), lambda http, _: http.get(f"/v1/files/{file_id}/content"))
        until(lambda: at_contents() >= CONTENTS.count)
        answers_still(http, hands)
    for thread in hung:
        thread.join(SECONDS)
    hands.close()


def test_claims_whose_rows_hang_hold_up_no_other_call(
    served: Served, content: tuple[str, Path], until: Callable[..., None]
) -> None:
    _, path = content
    hands = Hands(served)
    claim = {"worker_id": hands.worker_id, "boot_id": hands.boot_id, "request_id": "the-same"}
    with hanging(path), served.http() as http:
        hung = many(served, served.key("worker"), lambda http, _: http.post("/workers/claim", json=claim))
        until(lambda: at_contents() >= WORKER_CONTENTS.count)
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
