"""Downloads of contents that are not what was written: no wrong byte is served as right, and the next call says so."""

import json
import os
from collections.abc import Callable

import httpx
import openai
import pytest
from sqlmodel import select

from app.checksums import BLOCK_BYTES
from app.client.errors import Refused
from app.db.tables import Blob, Event, File
from app.domain.rows import Reply
from tests.damaged import WAYS, damage, flip
from tests.hands import Hands, do_control_work
from tests.scraped import scrape
from tests.served import Served, rows

SIZE = 3 * BLOCK_BYTES + 1000
AT = BLOCK_BYTES + 7
WHERE = f"its bytes {BLOCK_BYTES} to {2 * BLOCK_BYTES - 1} are not those that were written"


def blob_of(served: Served, file_id: str) -> Blob:
    with served.yard.store.read() as session:
        return session.exec(select(Blob).join(File).where(File.id == file_id)).one()


def spoil(served: Served, file_id: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a file's content; returns what it was."""
    return damage(served.yard.blobs, blob_of(served, file_id).key, change)


def told(served: Served, kind: str) -> list[tuple[str, object, str]]:
    with served.yard.store.read() as session:
        found = session.exec(select(Event).where(Event.type == kind).order_by("seq")).all()
    return [(event.subject, event.data.get("file"), event.data["what"]) for event in found]


def uploaded(served: Served, content: bytes) -> str:
    with served.client() as sdk:
        return sdk.files.create(file=("big.jsonl", content), purpose="user_data").id


def fetched(client: httpx.Client, path: str, **headers: str) -> bytes:
    """What arrives of an answer that breaks off; an answer that ends as it should is wrong here."""
    found: list[bytes] = []
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code in {200, 206}
        with pytest.raises(httpx.RemoteProtocolError):
            found.extend(answer.iter_raw())
    return b"".join(found)


def assert_damaged(answer: httpx.Response, file_id: str, *says: str) -> None:
    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
    if answer.request.method == "HEAD":
        return
    error = answer.json()["error"]
    assert error["code"] == "file_damaged"
    for text in (f"'{file_id}' is damaged", *says):
        assert text in error["message"]


def test_a_damaged_block_is_never_sent_and_from_then_on_every_call_says_so(served: Served) -> None:
    file_id = uploaded(served, os.urandom(SIZE))
    good = spoil(served, file_id, lambda old: flip(old, AT))
    path = f"/v1/files/{file_id}/content"
    behind = f"bytes={2 * BLOCK_BYTES}-"
    with served.http() as client:
        assert client.head(path).status_code == 200
        assert client.get(path, headers={"range": "bytes=0-9"}).content == good[:10]
        assert client.get(path, headers={"range": behind}).content == good[2 * BLOCK_BYTES :]
        assert fetched(client, path) == good[:BLOCK_BYTES]
        for headers in ({}, {"range": "bytes=0-9"}, {"range": behind}):
            assert_damaged(client.get(path, headers=headers), file_id, WHERE, "Upload the file again")
        assert_damaged(client.head(path), file_id)
        assert scrape(client).get("gpuyard_damaged_contents_total", kind="input") == 1
    assert told(served, "file.damaged") == [(file_id, None, WHERE)]
    with served.client(max_retries=0) as sdk, pytest.raises(openai.ConflictError, match="is damaged"):
        sdk.files.content(file_id)


@pytest.mark.parametrize(
    ("asked", "arrives"),
    [(f"bytes={AT}-{AT}", None), (f"bytes={BLOCK_BYTES - 5}-{AT}", 5), (f"bytes=-{SIZE - BLOCK_BYTES + 5}", 5)],
)
def test_a_range_that_touches_the_damage_ends_before_it(served: Served, asked: str, arrives: int | None) -> None:
    file_id = uploaded(served, os.urandom(SIZE))
    good = spoil(served, file_id, lambda old: flip(old, AT))
    path = f"/v1/files/{file_id}/content"
    with served.http() as client:
        if arrives is not None:
            assert fetched(client, path, range=asked) == good[BLOCK_BYTES - 5 : BLOCK_BYTES]
        assert_damaged(client.get(path, headers={"range": asked}), file_id, WHERE)


@pytest.mark.parametrize("way", ["halved", "longer"])
@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_a_file_of_another_length_is_told_before_any_byte(served: Served, way: str, method: str) -> None:
    file_id = uploaded(served, os.urandom(SIZE))
    spoil(served, file_id, WAYS[way])
    with served.http() as client:
        asked = client.request(method, f"/v1/files/{file_id}/content", headers={"range": "bytes=0-9"})
        assert_damaged(asked, file_id, f"bytes instead of {SIZE}")
    assert blob_of(served, file_id).damaged_at is not None


@pytest.mark.parametrize(
    "asked", ["HEAD /v1/files/{}/content", "GET /v1/files/{}/content", "GET /v1/batches/{}/results"]
)
def test_results_that_are_gone_are_refused_and_recorded_once(served: Served, asked: str) -> None:
    batch_id, output, _ = ended(served, 10, 10)
    served.yard.blobs.delete(blob_of(served, output).key)
    method, path = asked.format(batch_id if "batches" in asked else output).split()
    with served.http() as client:
        assert client.get(f"/v1/batches/{batch_id}").json()["gpuyard"]["damaged"] is None
        for _ in range(2):
            assert_damaged(client.request(method, path), output, "it is gone")
        assert scrape(client).get("gpuyard_damaged_contents_total", kind="result") == 1
        for path in ("/v1/batches", f"/v1/batches/{batch_id}"):
            assert f'"damaged":"the output file {output}: it is gone"' in client.get(path).text
    assert told(served, "batch.damaged") == [(batch_id, output, "it is gone")]


def ended(served: Served, count: int, answer_bytes: int) -> tuple[str, str, str]:
    """A batch whose odd rows failed: its id, and its output and error file."""
    with served.client() as sdk:
        file = sdk.files.create(file=("in.jsonl", rows(count)), purpose="batch")
        batch = sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        do_control_work(served)
        hands = Hands(served)
        try:
            body = json.dumps("x" * answer_bytes).encode()
            hands.work(lambda row: Reply(status=400 if row % 2 else 200, body=body))
        finally:
            hands.plane.close()
        do_control_work(served)
        found = sdk.batches.retrieve(batch.id)
        assert found.status == "completed"
        return batch.id, found.output_file_id or "", found.error_file_id or ""


def test_results_of_a_damaged_file_break_off_before_a_wrong_line_and_then_say_so(served: Served) -> None:
    batch_id, output, _ = ended(served, 300, 20_000)
    path = f"/v1/batches/{batch_id}/results"
    with served.http() as client:
        whole = client.get(path).content
        assert len(whole.splitlines()) == 300
        spoil(served, output, lambda old: flip(old, AT))
        found = fetched(client, path)
        assert whole.startswith(found)
        assert found
        assert_damaged(client.get(path), output, WHERE, "from a backup")
        assert_damaged(client.get(f"/v1/files/{output}/content"), output, WHERE)
        assert scrape(client).get("gpuyard_damaged_contents_total", kind="result") == 1
    assert told(served, "batch.damaged") == [(batch_id, output, WHERE)]


@pytest.mark.parametrize("way", WAYS)
def test_small_results_that_are_damaged_are_an_error_before_any_byte(served: Served, way: str) -> None:
    batch_id, output, errors = ended(served, 10, 10)
    with served.http() as client:
        for file_id in (output, errors):
            spoil(served, file_id, WAYS[way])
            assert_damaged(client.get(f"/v1/files/{file_id}/content"), file_id)
            assert_damaged(client.get(f"/v1/batches/{batch_id}/results"), output)
        known = client.get(f"/v1/batches/{batch_id}/errors", params={"limit": 10}).json()
        assert (known["rows"], known["failed"]) == (5, [])


def test_a_worker_is_served_its_part_whatever_became_of_the_rest(served: Served) -> None:
    """Under its lease it compares its own range, which is finer than a block."""
    with served.client() as sdk:
        file_id = sdk.files.create(file=("in.jsonl", rows(600)), purpose="batch").id
        sdk.batches.create(input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h")
    do_control_work(served)
    hands = Hands(served)
    _, grants, path = hands.claim()
    first, last = grants[0], grants[-1]
    good = spoil(served, file_id, lambda old: old[: last.start + 10])
    try:
        assert hands.plane.download(path, first.start, first.end) == good[first.start : first.end]
        with served.http() as client:
            assert_damaged(client.get(path), file_id)
        assert hands.plane.download(path, first.start, first.end) == good[first.start : first.end]
        with pytest.raises(Refused, match="is damaged") as refused:
            hands.plane.download(path, last.start, last.end)
        assert refused.value.code == "file_damaged"
    finally:
        hands.plane.close()
