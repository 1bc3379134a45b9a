"""Uploads that are large, cut, malformed or in another order: whole or not at all, and nobody else waits for them."""

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest
from sqlmodel import select

from app.blobs.local import MARKER
from app.blobs.store import BlobUnavailable
from app.db.tables import Blob, File
from tests.databases import Databases
from tests.migrated import migrate
from tests.served import ADMIN_KEY, Served, serving

BOUNDARY = "b0undary"
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
WAIT_SECONDS = 10.0


def part(name: str, value: bytes, filename: str | None = None) -> bytes:
    file = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def stored(served: Served) -> tuple[int, int, int]:
    """Count files, blobs that are there, and contents on disk."""
    with served.yard.store.read() as session:
        files = len(session.exec(select(File)).all())
        blobs = sum(blob.put_at is not None for blob in session.exec(select(Blob)).all())
    root = Path(served.yard.blobs.root)  # type: ignore[attr-defined]
    return files, blobs, sum(path.is_file() for path in root.rglob("*") if path.name != MARKER)


@pytest.fixture
def small(sqlite_databases: Databases, tmp_path: Path) -> Iterator[Served]:
    """A server that takes files of a mebibyte at most."""
    with serving(sqlite_databases.copy_of(migrate), tmp_path / "data", max_file_bytes=2**20) as running:
        yield running


def test_the_parts_may_come_in_any_order(served_on_sqlite: Served) -> None:
    purpose, file = part("purpose", b"batch"), part("file", b"{}\n", "in.jsonl")
    expiry = part("expires_after[anchor]", b"created_at") + part("expires_after[seconds]", b"3600")
    with served_on_sqlite.http() as http:
        for body in (form(purpose, expiry, file), form(file, purpose, expiry), form(expiry, file, purpose)):
            made = http.post("/v1/files", content=body, headers=HEADERS).json()
            assert (made["bytes"], made["filename"]) == (3, "in.jsonl")
            assert made["expires_at"] == made["created_at"] + 3600


def test_a_form_in_single_bytes_is_the_same_form(served_on_sqlite: Served) -> None:
    data = f"\r\n--{BOUNDARY[:-1]}\r\n--".encode() * 5
    body = form(part("file", data, "x"), part("purpose", b"batch"))
    with served_on_sqlite.http() as http:
        made = http.post("/v1/files", content=(body[n : n + 1] for n in range(len(body))), headers=HEADERS).json()
        assert http.get(f"/v1/files/{made['id']}/content").content == data


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (form(part("purpose", b"batch")), "file"),
        (form(part("file", b"{}", "x")), "purpose"),
        (form(part("file", b"{}", "x"), part("purpose", b"")), "purpose"),
        (form(part("file", b"{}", "x"), part("purpose", b"batch_output")), "purpose"),
        (form(part("file", b"{}", "x"), part("purpose", b"batch\0")), "purpose"),
        (form(part("file", b"{}", "x"), part("purpose", b"x" * 5000)), "purpose"),
        (form(part("file", b"{}", "x"), part("file", b"{}", "x"), part("purpose", b"batch")), "file"),
        (
            form(part("file", b"{}", "x"), part("purpose", b"batch"), part("expires_after[seconds]", b"9999")),
            "expires_after",
        ),
        (
            form(
                part("file", b"{}", "x"),
                part("purpose", b"batch"),
                part("expires_after[anchor]", b"now"),
                part("expires_after[seconds]", b"9999"),
            ),
            "expires_after[anchor]",
        ),
        (part("purpose", b"batch") + part("file", b"{}", "x"), None),
        (part("purpose", b"batch") + part("file", b"x" * 3_000_000, "x")[:-2], None),
        (b"", "file"),
        (b"\x00\xff not a form", None),
        (form(*(part(f"p{n}", b"x") for n in range(100))), None),
        (f"--{BOUNDARY}\r\n".encode() + b"X" * 100_000, None),
    ],
)
def test_a_form_that_is_none_is_a_400_and_leaves_nothing(
    served_on_sqlite: Served, body: bytes, param: str | None
) -> None:
    with served_on_sqlite.http() as http:
        answer = http.post("/v1/files", content=body, headers=HEADERS)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert stored(served_on_sqlite) == (0, 0, 0)


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "",
        "multipart/form-data; boundary=" + "b" * 500,
    ],
)
def test_another_kind_of_body_is_a_400(served_on_sqlite: Served, kind: str) -> None:
    with served_on_sqlite.http() as http:
        answer = http.post("/v1/files", content=b"{}", headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_body")


def test_a_file_of_the_limit_is_taken_and_a_byte_more_is_not(small: Served) -> None:
    client = small.client(max_retries=0)
    assert client.files.create(file=b"x" * 2**20, purpose="batch").bytes == 2**20
    with pytest.raises(openai.APIStatusError) as refused:
        client.files.create(file=b"x" * (2**20 + 1), purpose="batch")
    assert (refused.value.status_code, refused.value.code) == (413, "file_too_large")
    assert stored(small) == (1, 1, 1)


def test_a_file_far_above_the_limit_is_refused_by_its_length(small: Served) -> None:
    """The stock SDK hears the 413, although it is still sending when the answer comes."""
    with pytest.raises(openai.APIStatusError) as refused:
        small.client().files.create(file=b"x" * 30_000_000, purpose="batch")
    assert refused.value.status_code == 413
    assert refused.value.response.request.headers["x-stainless-retry-count"] == "0"
    assert stored(small) == (0, 0, 0)


def test_a_caller_that_goes_away_leaves_nothing(served_on_sqlite: Served) -> None:
    host, port = served_on_sqlite.url.removeprefix("http://").split(":")
    body = part("purpose", b"batch") + part("file", b"x" * 5_000_000, "x")
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\n"
        f"Content-Type: {HEADERS['content-type']}\r\nContent-Length: {len(body) + 1000}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode() + body)
        until(lambda: stored(served_on_sqlite)[2] == 1)

    def given_up() -> bool:
        with served_on_sqlite.yard.store.read() as session:
            return session.exec(select(Blob)).one().unreferenced_at is not None

    until(lambda: stored(served_on_sqlite) == (0, 0, 0))
    until(given_up)


def test_a_full_disk_is_a_503_and_leaves_nothing(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise BlobUnavailable("no space left on device")

    monkeypatch.setattr("app.blobs.local.LocalBlobWriter.write", full)
    with served_on_sqlite.http() as http:
        body = form(part("purpose", b"batch"), part("file", b"x" * 3_000_000, "x"))
        answer = http.post("/v1/files", content=body, headers=HEADERS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "retry-after" in answer.headers
    assert stored(served_on_sqlite) == (0, 0, 0)


def test_a_slow_disk_holds_nobody_else_up(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a write hangs, other calls are answered: no write is on the event loop."""
    writing, go = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        writing.set()
        assert go.wait(WAIT_SECONDS)

    monkeypatch.setattr("app.blobs.local.LocalBlobWriter.write", hang)
    body = form(part("purpose", b"batch"), part("file", b"x" * 5_000_000, "x"))
    upload = threading.Thread(
        target=lambda: httpx.post(
            f"{served_on_sqlite.url}/v1/files",
            content=body,
            headers=HEADERS | {"authorization": f"Bearer {ADMIN_KEY}"},
            timeout=30,
        )
    )
    upload.start()
    try:
        assert writing.wait(WAIT_SECONDS)
        with served_on_sqlite.http() as http:
            began = time.monotonic()
            assert http.get("/healthz").status_code == 200
            assert time.monotonic() - began < 2
    finally:
        go.set()
        upload.join()


def test_an_upload_is_never_whole_in_memory(served_on_sqlite: Served) -> None:
    size, piece = 150_000_000, b"x" * 1_000_000

    def body() -> Iterator[bytes]:
        yield part("purpose", b"batch")
        yield part("file", b"", "x")[:-2]
        yield from (piece for _ in range(size // len(piece)))
        yield form(b"\r\n")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with served_on_sqlite.http() as http:
        made = http.post("/v1/files", content=body(), headers=HEADERS).json()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert made["bytes"] == size
    assert grown < 40_000_000


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, within a bound."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
