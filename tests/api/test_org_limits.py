"""What an org has under way at once, and what a caller hears who would have too much."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn

from app.api.http_wire import HttpWire
from app.api.main import close_listeners
from app.api.streams import Shown
from app.client.errors import Refused
from app.client.public import PublicApi
from tests.commands import Commands
from tests.commands import rows as lines
from tests.databases import Databases
from tests.hands import hello
from tests.migrated import migrate
from tests.served import ADMIN_KEY, Served, rows, serving

UNREAD_SECONDS = 1.0
MIB = 1024 * 1024
CONTENT_BYTES = 30_000_000
"""More than the sockets between both ends hold."""


class Impatient(HttpWire):
    unread_seconds = UNREAD_SECONDS


@pytest.fixture
def impatient(sqlite_databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The API as it is served, but for its patience; an org may have two uploads and two downloads under way."""
    config = uvicorn.Config
    monkeypatch.setattr(uvicorn, "Config", lambda app, **options: config(app, http=Impatient, **options))
    url = sqlite_databases.copy_of(migrate)
    with serving(url, tmp_path / "data", org_downloads=2, org_uploads=2, org_polls=2) as running:
        yield running


def uploaded(served: Served, content: bytes, key: str = ADMIN_KEY) -> str:
    return served.client(key).files.create(file=("in.jsonl", content), purpose="batch").id


def address(served: Served) -> tuple[str, int]:
    return "127.0.0.1", int(served.url.rpartition(":")[2])


@contextmanager
def asked(served: Served, request: str, key: str, *headers: str) -> Iterator[socket.socket]:
    """Send a request's head, and read nothing of its answer."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.settimeout(30)
        connection.connect(address(served))
        lines = [f"{request} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        yield connection


def under_way(served: Served, kind: str) -> int:
    return int(served.app.state.in_flight._of_all[kind])


def test_a_download_that_nobody_reads_is_cut_off_and_another_orgs_is_not_kept_out(
    impatient: Served, until: Callable[..., None]
) -> None:
    served, other = impatient, impatient.key("submit", org="other")
    path = f"/v1/files/{uploaded(served, b'x' * CONTENT_BYTES)}/content"
    theirs = f"/v1/files/{uploaded(served, b'theirs', other)}/content"
    with ExitStack() as stack:
        stalled = [stack.enter_context(asked(served, f"GET {path}", ADMIN_KEY)) for _ in range(2)]
        until(lambda: under_way(served, "downloads") == 2)
        with served.http() as http, served.http(other) as others:
            refused = http.get(path, headers={"range": "bytes=0-1"})
            if under_way(served, "downloads") == 2:
                assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_downloads")
                assert refused.headers["retry-after"]
            assert others.get(theirs).content == b"theirs"
            until(lambda: not under_way(served, "downloads"))
            assert http.get(path, headers={"range": "bytes=0-1"}).content == b"xx"
        for connection in stalled:
            with pytest.raises(ConnectionResetError):
                connection.makefile("rb").read()


def test_one_that_is_read_slowly_and_goes_on_is_waited_for(impatient: Served, until: Callable[..., None]) -> None:
    path = f"/v1/files/{uploaded(impatient, b'x' * CONTENT_BYTES)}/content"
    pause = threading.Event()
    with asked(impatient, f"GET {path}", ADMIN_KEY, "Connection: close") as connection:
        until(lambda: under_way(impatient, "downloads") == 1)
        received = 0
        for _ in range(10):  # in all for longer than it waits for a caller that reads nothing
            received += len(connection.recv(50_000))
            pause.wait(UNREAD_SECONDS / 4)
        assert received < CONTENT_BYTES / 10
        while piece := connection.recv(1_000_000):
            received += len(piece)
    assert received > CONTENT_BYTES


def test_a_stream_of_events_that_nobody_reads_is_cut_off(
    impatient: Served, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    long = Shown(f": {'x' * CONTENT_BYTES}\n\n", has_ended=False)
    monkeypatch.setattr("app.api.events.shown", lambda _: long)
    batch = {"input_file_id": uploaded(impatient, rows(3)), "endpoint": "/v1/chat/completions"}
    with impatient.http() as http:
        made = http.post("/v1/batches", json=batch | {"completion_window": "24h"}).json()
        with asked(impatient, f"GET /v1/batches/{made['id']}/events?show=both", ADMIN_KEY):
            until(lambda: under_way(impatient, "streams") == 1)
            until(lambda: not under_way(impatient, "streams"))


def test_results_and_errors_count_as_a_download(impatient: Served, until: Callable[..., None]) -> None:
    batch = {"input_file_id": uploaded(impatient, rows(3)), "endpoint": "/v1/chat/completions"}
    with impatient.http() as http, ExitStack() as stack:
        made = http.post("/v1/batches", json=batch | {"completion_window": "24h"}).json()
        in_flight = impatient.app.state.in_flight
        for _ in range(2):
            stack.enter_context(in_flight.hold("downloads", impatient.operator().org_id))
        for what in ("results", "errors"):
            assert http.get(f"/v1/batches/{made['id']}/{what}").json()["error"]["code"] == "too_many_downloads"


def test_retries_of_an_org_are_bounded_and_take_no_thread_from_others(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    in_flight = served.app.state.in_flight
    with served.http() as http, in_flight.hold("retries", served.operator().org_id):
        refused = http.post("/v1/batches/batch_none/retry")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_retries")
        with served.http(served.key("submit", org="other")) as others:
            assert others.post("/v1/batches/batch_none/retry").status_code == 404


def test_uploads_of_an_org_are_bounded_and_the_sdk_tries_again(impatient: Served, until: Callable[..., None]) -> None:
    form = ("Content-Type: multipart/form-data; boundary=b", "Content-Length: 1000")
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(asked(impatient, "POST /v1/files", ADMIN_KEY, *form))
        until(lambda: under_way(impatient, "uploads") == 2)
        with pytest.raises(openai.RateLimitError) as refused:
            impatient.client(max_retries=1).files.create(file=b"x", purpose="batch")
        assert refused.value.code == "too_many_uploads"
        assert refused.value.response.request.headers["x-stainless-retry-count"] == "1"
        assert uploaded(impatient, b"x", impatient.key("submit", org="other"))
    until(lambda: not under_way(impatient, "uploads"))
    assert uploaded(impatient, b"x")


@pytest.mark.parametrize(
    ("bound", "length", "code"),
    [({"org_bodies": 2}, 10, "too_many_bodies"), ({"org_body_bytes": 2_500_000}, 1_200_000, "too_many_body_bytes")],
)
def test_bodies_of_an_org_that_have_not_arrived_are_bounded(
    sqlite_databases: Databases, tmp_path: Path, until: Callable[..., None], bound: Any, length: int, code: str
) -> None:
    form = ("Content-Type: application/json", f"Content-Length: {length}")
    with serving(sqlite_databases.copy_of(migrate), tmp_path / "data", **bound) as served:
        key, content = served.key("worker", org="own"), b" " * length
        with served.http(key) as http, served.http(served.key("worker", org="other")) as others:
            with ExitStack() as stack:
                for _ in range(2):
                    held = stack.enter_context(asked(served, "POST /workers/x/bye", key, *form))
                    held.sendall(content[1:])
                until(lambda: under_way(served, "bodies") == 2)
                refused = http.post("/workers/x/bye", content=content)
                assert (refused.status_code, refused.json()["error"]["code"]) == (429, code)
                assert refused.headers["retry-after"]
                assert others.post("/workers/x/bye", content=content).status_code == 400
            until(lambda: not under_way(served, "body_bytes"))
            assert http.post("/workers/x/bye", content=content).status_code == 400


@pytest.mark.parametrize(
    ("count", "status", "code"),
    [
        (10, 400, "invalid_value"),
        (20_000, 400, "invalid_value"),
        (60_000, 400, "too_many_values"),
        (800_000, 413, "request_too_large"),
    ],
)
def test_a_large_body_is_judged_by_its_first_fault(
    served_on_sqlite: Served, count: int, status: int, code: str
) -> None:
    body = b'{"boot_id":"b","leases":[' + b",".join([b"{}"] * count) + b"]}"
    with served_on_sqlite.http(served_on_sqlite.key("worker")) as http:
        refused = http.post("/workers/x/heartbeat", content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


def test_a_heartbeat_with_all_that_it_may_have_is_taken(served_on_sqlite: Served) -> None:
    leases = [10**18 + number for number in range(10_000)]
    models = [
        [f"{number}".rjust(64, "\N{BUTTERFLY}") for number in range(first, first + 2_000)] for first in (0, 2_000)
    ]
    runtimes = [{"name": "r", "kind": "vllm", "alive": True, "models": some} for some in models]
    word = hello("gpu0").model_dump(mode="json") | {"runtimes": runtimes}
    beat = {"boot_id": word["boot_id"], "leases": leases, "unstarted": leases, "spooled": leases, "runtimes": runtimes}
    with served_on_sqlite.http(served_on_sqlite.key("worker")) as http:
        made = http.post("/workers/register", json=word)
        assert made.status_code == 200, made.text
        body = json.dumps(beat | {"claiming": ["r"] * 1_000}, ensure_ascii=False).encode()
        assert len(body) > MIB
        taken = http.post(
            f"/workers/{made.json()['worker_id']}/heartbeat",
            content=body,
            headers={"content-type": "application/json"},
        )
        assert (taken.status_code, len(taken.json()["leases"])) == (200, 10_000)


def test_workers_of_an_org_that_wait_are_bounded(impatient: Served, until: Callable[..., None]) -> None:
    key = impatient.key("worker")

    def wait(http: httpx.Client, name: str) -> httpx.Response:
        word = hello(name)
        worker_id = http.post("/workers/register", json=word.model_dump(mode="json")).json()["worker_id"]
        poll = {"worker_id": worker_id, "boot_id": word.boot_id, "wait_seconds": 20, "free": 0, "cursor": None}
        return http.post("/workers/poll", json=poll)

    with impatient.http(key) as http:
        waiting = [threading.Thread(target=wait, args=(http, f"gpu{n}"), daemon=True) for n in range(2)]
        for thread in waiting:
            thread.start()
        until(lambda: under_way(impatient, "polls") == 2)
        refused = wait(http, "gpu9")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_polls")
        impatient.app.state.listeners._loop.call_soon_threadsafe(close_listeners, impatient.app)
        for thread in waiting:
            thread.join(30)


@pytest.mark.parametrize("kind", ["files", "file_bytes", "batches", "pools", "webhook_endpoints"])
def test_over_a_quota_the_stock_sdk_hears_which_and_does_not_try_again(
    databases: Databases, tmp_path: Path, kind: str
) -> None:
    bound = {f"org_{kind}": 1 if kind != "file_bytes" else 300, "webhook_networks": ("127.0.0.0/8",)}
    with serving(databases.copy_of(migrate), tmp_path / "data", **bound) as served:
        client, numbers = served.client(max_retries=3), count()
        file_id = client.files.create(file=b"x" * 300, purpose="batch").id
        batch = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        calls: dict[str, Callable[[], object]] = {
            "files": lambda: client.files.create(file=b"y", purpose="batch"),
            "file_bytes": lambda: client.files.create(file=b"y", purpose="batch"),
            "batches": lambda: client.post("/batches", body=batch, cast_to=object),
            "pools": lambda: client.post(
                "/pools", body={"name": f"own-{next(numbers)}", "shared": False}, cast_to=object
            ),
            "webhook_endpoints": lambda: client.post(
                "/webhook_endpoints",
                body={"name": "n", "url": "http://127.0.0.1:9/", "event_types": ["batch.failed"]},
                cast_to=object,
            ),
        }
        if not kind.startswith("file"):
            calls[kind]()
        with pytest.raises(openai.RateLimitError) as refused:
            calls[kind]()
        assert refused.value.code == "limit_reached"
        assert (
            f"limit org_{kind} reached: this org has {bound[f'org_{kind}']} of at most {bound[f'org_{kind}']} "
            in refused.value.message
        )
        assert refused.value.response.headers["x-should-retry"] == "false"
        assert refused.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_the_command_line_does_not_try_again_either(sqlite_databases: Databases, tmp_path: Path) -> None:
    with (
        serving(sqlite_databases.copy_of(migrate), tmp_path / "data", org_files=1) as served,
        PublicApi(served.url, ADMIN_KEY) as api,
    ):
        uploaded(served, b"x")
        with pytest.raises(Refused, match="org_files"):
            api.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a", b"x")}, deadline_seconds=60)


def test_submit_waits_for_a_place_among_the_uploads_and_then_sends_the_file_whole(
    sqlite_databases: Databases, tmp_path: Path, until: Callable[..., None]
) -> None:
    content = lines(20_000)
    (tmp_path / "in.jsonl").write_bytes(content)
    with serving(sqlite_databases.copy_of(migrate), tmp_path / "data", org_uploads=1) as served, ExitStack() as held:
        length = f"Content-Length: {len(content)}"
        held.enter_context(
            asked(served, "POST /v1/files", ADMIN_KEY, "Content-Type: multipart/form-data; boundary=b", length)
        )
        until(lambda: under_way(served, "uploads") == 1)
        commands = Commands(tmp_path, {"GPUYARD_SERVER_URL": served.url, "GPUYARD_API_KEY": ADMIN_KEY})
        submit = commands.start("submit", tmp_path / "in.jsonl", "--json")
        assert submit.stderr is not None
        assert "org_uploads" in submit.stderr.readline()
        held.close()
        out, err = submit.communicate(timeout=60)
        assert submit.returncode == 0, err
        assert served.client().files.content(json.loads(out)["input_file_id"]).content == content
