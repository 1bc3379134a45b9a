"""One id from a caller's log to ours: `x-request-id` in, out, and on every line that is logged for the call."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
import structlog
from structlog.testing import capture_logs

from app.client.control_plane import ControlPlane
from app.client.errors import NotKnown
from app.db.store import DatabaseUnavailable
from app.schemas.claims import FailureReport
from tests.hands import Hands, do_control_work
from tests.served import Served, rows

Lines = list[structlog.typing.EventDict]


def answered(lines: Lines, enough: Callable[[Lines], object]) -> Lines:
    """Give what was logged of answers, once it is enough: a line is logged when its answer has left."""
    end = time.monotonic() + 30
    while not enough(found := [line for line in lines if line["event"] == "http.answered"]):
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return found


def test_a_workers_call_has_one_id_in_its_error_and_in_the_control_planes_log(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http() as http:
        file = http.post("/v1/files", files={"file": ("in.jsonl", rows(3))}, data={"purpose": "batch"}).json()
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = http.post("/v1/batches", json=body).json()
    do_control_work(served_on_sqlite)
    with closing(Hands(served_on_sqlite)) as hands, capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        _, grants, _ = hands.claim()
        report = FailureReport(
            worker_id=hands.worker_id, lease_id=grants[0].lease_id, request_id="one", error="it broke"
        )
        hands.plane.report_failure(report)
        unknown = ControlPlane(served_on_sqlite.url, served_on_sqlite.key("worker"), boot_id="other")
        with closing(unknown), pytest.raises(NotKnown) as refused:
            unknown.report_failure(report.model_copy(update={"worker_id": "wrk_of-nobody"}))
        told = answered(lines, lambda found: found and found[-1]["request_id"] == refused.value.request_id)
    ends = next(line for line in lines if line["event"] == "lease_ended")
    assert ends["worker"] == "gpu1"
    assert ends["batch_id"] == batch["id"]
    assert (ends["lease_id"], ends["job_id"]) == (grants[0].lease_id, grants[0].job_id)
    assert ends["request_id"] in {line["request_id"] for line in told}
    assert (told[-1]["status"], told[-1]["route"], told[-1]["log_level"]) == (404, "/workers/report-failure", "info")


def test_an_id_that_is_unsafe_or_endless_is_replaced(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http() as http, capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        for nasty in ("a b", "x" * 129, "é", "<script>", ""):
            answer = http.get("/v1/files/file_1", headers=[(b"x-request-id", nasty.encode("latin-1"))])
            assert answer.headers["x-request-id"].startswith("req_")
        kept = http.get("/v1/files/file_1", headers={"x-request-id": "x" * 128})
        assert kept.headers["x-request-id"] == "x" * 128
        logged = [line["request_id"] for line in answered(lines, lambda found: len(found) == 6)]
    assert logged[-1] == "x" * 128
    assert all(one.startswith("req_") for one in logged[:-1])


def test_every_try_of_one_call_has_its_id(served_on_sqlite: Served) -> None:
    yard, tries = served_on_sqlite.yard, 0
    with closing(Hands(served_on_sqlite)) as hands, capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        begin = yard.store.begin

        def fails_once() -> object:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise DatabaseUnavailable("for a moment")
            return begin()

        yard.store.begin = fails_once  # type: ignore[method-assign, assignment]
        try:
            hands.claim()
        finally:
            yard.store.begin = begin  # type: ignore[method-assign]
        told = answered(
            lines, lambda found: found and found[-1]["route"] == "/workers/claim" and found[-1]["status"] == 200
        )
    claims = [line for line in told if line["route"] == "/workers/claim"]
    assert [line["status"] for line in claims] == [503, 200]
    assert len({line["request_id"] for line in claims}) == 1
