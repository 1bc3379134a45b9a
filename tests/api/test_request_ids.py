"""One id from a caller's log to ours: `x-request-id` in, out, and on every line that is logged for the call."""

from contextlib import closing

import pytest
import structlog
from structlog.testing import capture_logs

from app.client.control_plane import ControlPlane
from app.client.errors import Refused
from app.db.store import DatabaseUnavailable
from app.schemas.claims import FailureReport
from tests.hands import Hands, do_control_work
from tests.served import Served, rows


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
        with closing(unknown), pytest.raises(Refused) as refused:
            unknown.report_failure(report.model_copy(update={"worker_id": "wrk_of-nobody"}))
    ends = next(line for line in lines if line["event"] == "lease_ended")
    assert ends["worker"] == "gpu1"
    assert ends["batch_id"] == batch["id"]
    assert (ends["lease_id"], ends["job_id"]) == (grants[0].lease_id, grants[0].job_id)
    answered = [line for line in lines if line["event"] == "http.answered"]
    assert ends["request_id"] in {line["request_id"] for line in answered}
    last = answered[-1]
    assert (last["status"], last["route"], last["log_level"]) == (404, "/workers/report-failure", "info")
    assert last["request_id"] == refused.value.request_id


def test_an_id_that_is_unsafe_or_endless_is_replaced(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http() as http, capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        for nasty in ("a b", "x" * 129, "é", "<script>", ""):
            answer = http.get("/v1/files/file_1", headers=[(b"x-request-id", nasty.encode("latin-1"))])
            assert answer.headers["x-request-id"].startswith("req_")
        kept = http.get("/v1/files/file_1", headers={"x-request-id": "x" * 128})
        assert kept.headers["x-request-id"] == "x" * 128
    logged = [line["request_id"] for line in lines if line["event"] == "http.answered"]
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
    answered = [line for line in lines if line["event"] == "http.answered" and line["route"] == "/workers/claim"]
    assert [line["status"] for line in answered] == [503, 200]
    assert len({line["request_id"] for line in answered}) == 1
