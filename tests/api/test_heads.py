"""HEAD says what GET would, of every route, and sends nothing of it: balancers probe so, and careful downloads."""

from collections.abc import Callable

import httpx

from app.api.access import ACCESS
from tests.api_target import Target
from tests.served import Served, rows

OF_THE_ANSWER = {"date", "x-request-id", "content-length", "transfer-encoding"}
"""Lengths too: figures and ages are not the same a moment later."""


def test_head_is_answered_as_get_without_a_body(target: Target) -> None:
    paths = [route.removeprefix("GET ") for route in ACCESS if route.startswith("GET ")]
    names = {name: str(value) for name, value in target.ids.items()}
    with target.http("admin") as http:
        for path in paths:
            filled = path.replace("{model_id:path}", "m").format_map(names | {"endpoint_id": "we_1", "name": "main.js"})
            if filled.endswith(f"{target.ids['batch_id']}/events"):
                continue  # GET does not end
            head, got = http.head(filled), http.get(filled)
            assert (head.status_code, head.content) == (got.status_code, b""), filled
            assert told(head) == told(got), filled


def told(answer: httpx.Response) -> dict[str, str]:
    """What an answer's head says of what was asked for."""
    return {name: value for name, value in answer.headers.items() if name not in OF_THE_ANSWER}


def test_the_head_of_a_stream_of_events_ends_and_leaves_nothing_open(
    served_on_sqlite: Served, until: Callable[..., None]
) -> None:
    streams = served_on_sqlite.app.state.streams
    client = served_on_sqlite.client()
    file = client.files.create(file=("in.jsonl", rows(3)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    with served_on_sqlite.http() as http:
        answer = http.head(f"/v1/batches/{batch.id}/events", timeout=5)
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        until(lambda: not streams._open, seconds=5)
        assert http.get("/healthz").json() == {"status": "ok"}, "the connection is good for the next call"


def test_head_is_for_whom_get_is_and_nothing_else_has_one(served_on_sqlite: Served) -> None:
    with served_on_sqlite.http(None) as nobody, served_on_sqlite.http() as admin:
        assert nobody.head("/healthz").status_code == 200
        assert nobody.head("/v1/batches").status_code == 401
        assert admin.head("/v1/batches/batch_none").status_code == 404
        assert admin.head("/workers/claim").status_code == 405


def test_calls_are_counted_as_what_they_were(served_on_sqlite: Served, until: Callable[..., None]) -> None:
    with served_on_sqlite.http() as http:
        http.head("/healthz")
        http.head("/none")
    count = served_on_sqlite.yard.counters.registry.get_sample_value
    for route, status in (("/healthz", "200"), ("unknown", "404")):
        labels = {"method": "HEAD", "route": route, "status": status}
        until(lambda counted=labels: count("gpuyard_http_request_seconds_count", counted) == 1.0, seconds=5)
