"""`/readyz` needs no key: however many ask, it costs a look a second, and it says what works in part."""

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from app.api import health
from app.blobs.local import LocalBlobs
from tests.served import Served

CALLS = 200
WAIT_SECONDS = 30.0


def test_a_flood_of_questions_is_one_look_a_second(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    put = LocalBlobs.put

    def counted(self: LocalBlobs, *given: Any) -> Any:
        looks.append(time.monotonic())
        return put(self, *given)

    monkeypatch.setattr(LocalBlobs, "put", counted)
    began = time.monotonic()
    with served.http(None) as http:
        answers = {http.get("/readyz").status_code for _ in range(CALLS)}
    assert answers == {200}
    assert 1 <= len(looks) <= (time.monotonic() - began) / health.FRESH_SECONDS + 1


def test_a_store_that_hangs_is_said_in_time_and_what_is_known_of_the_others(
    served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    go = threading.Event()
    put = LocalBlobs.put

    def hang(self: LocalBlobs, *given: Any) -> Any:
        assert go.wait(WAIT_SECONDS)
        return put(self, *given)

    monkeypatch.setattr(LocalBlobs, "put", hang)
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.5)
    with served_on_sqlite.http(None) as http:
        try:
            answers = [http.get("/readyz") for _ in range(3)]
            assert http.get("/healthz").status_code == 200
        finally:
            go.set()
        assert {answer.status_code for answer in answers} == {503}
        assert answers[-1].json()["parts"] == {"database": "ok", "schema": "ok", "blobs": "no answer within 0.5 s"}
        until(lambda: http.get("/readyz").status_code == 200)


def test_while_the_disk_for_contents_is_full_it_is_ready_and_says_what_fails(
    served: Served, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with served.http() as http:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            answer = http.get("/readyz")
            upload = http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", b"{}\n")})
            listed = http.get("/v1/files")
        assert answer.status_code == 200
        assert answer.json()["ready"] is True
        assert answer.json()["parts"]["blobs"] == "the disk for contents is full"
        assert "uploads fail" in answer.json()["degraded"]["blobs"]
        assert (upload.status_code, upload.json()["error"]["code"]) == (503, "storage_full")
        assert "contents is full" in upload.json()["error"]["message"]
        assert "retry-after" in upload.headers
        assert listed.json()["data"] == []
        until(lambda: http.get("/readyz").json()["parts"]["blobs"] == "ok")
        assert http.get("/readyz").json()["degraded"] == {}
