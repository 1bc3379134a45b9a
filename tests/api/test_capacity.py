"""Heartbeats go on, whatever users do at the same moment: real processes, real sockets, and far too many calls."""

import asyncio
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx

from app.client.control_plane import ControlPlane
from app.db import events
from app.db.store import Store
from app.domain.workers import Phase
from app.schemas.workers import Heartbeat
from tests.api_process import api_process
from tests.databases import Databases
from tests.hands import hello
from tests.migrated import migrate
from tests.served import ADMIN_KEY, rows

BEATS = 30
SLOW_SECONDS = 2.0
"""On a machine that is busy with other tests. Where threads or connections are shared, it is many times that."""
HUNG_SECONDS = 10.0
START_SECONDS = 60.0
WARM = 5
"""Heartbeats that are not counted: a few hundred new connections at one moment are no state that lasts."""


class Burst:
    """So many callers at a time, each of which calls again some seconds after its answer. `statuses` counts those."""

    def __init__(self, url: str, request: bytes, callers: int, rest: float) -> None:
        self.begun = 0
        self.statuses: Counter[int] = Counter()
        host, _, port = url.removeprefix("http://").partition(":")
        self._address, self._request, self._callers = (host, int(port)), request, callers
        self._rest = rest
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        callers = [asyncio.create_task(self._calls()) for _ in range(self._callers)]
        await asyncio.to_thread(self._over.wait)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    async def _calls(self) -> None:
        while True:
            self.begun += 1
            reader, writer = await asyncio.open_connection(*self._address)
            try:
                writer.write(self._request)
                status = int((await reader.readline()).split()[1])
                while await reader.read(1024 * 1024):
                    pass
            finally:
                writer.close()
            self.statuses[status] += 1
            await asyncio.sleep(self._rest)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self._over.set()
        self._thread.join()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {ADMIN_KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def silent() -> Iterator[str]:
    """Something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def p95(plane: ControlPlane, worker_id: str) -> float:
    """How long a heartbeat takes, at the 95th percentile."""
    beat = Heartbeat(boot_id="boot-gpu1", phase=Phase.READY, leases=[])
    taken = []
    for _ in range(WARM + BEATS):
        began = time.monotonic()
        plane.heartbeat(worker_id, beat, timeout_seconds=60)
        taken.append(time.monotonic() - began)
        if taken[-1] > HUNG_SECONDS:
            return taken[-1]
    return statistics.quantiles(taken[WARM:], n=20)[-1]


def fill(database_url: str, org_id: str) -> None:
    """As many events as one call may list."""
    store = Store(database_url)
    recorded = [events.Recorded("test", f"batch_{n}", "test", org_id, {"text": "x" * 100}) for n in range(1000)]
    with store.begin() as session:
        events.record_all(session, recorded, now=store.now(session))
    store.close()


def test_heartbeats_go_on_whatever_users_do(databases: Databases, tmp_path: Path, until: Callable[..., None]) -> None:
    url = databases.copy_of(migrate)
    with api_process(url, tmp_path, GPUYARD_WEBHOOK_NETWORKS="127.0.0.0/8") as api, silent() as nobody:
        with httpx.Client(base_url=api.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as http:
            org = http.get("/v1/orgs").json()["data"][0]["id"]
            key = http.post("/v1/tokens", json={"name": "w", "scopes": ["worker"]}).json()["secret"]
            hook = {"name": "hangs", "url": nobody, "event_types": ["batch.failed"]}
            endpoint = http.post("/v1/webhook_endpoints", json=hook).json()["id"]
            file = http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a", rows(1))}).json()["id"]
            new = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            batch = http.post("/v1/batches", json=new).json()["id"]
        fill(url, org)
        plane = ControlPlane(api.url, key, boot_id="boot-gpu1")
        worker_id = plane.register(hello()).worker_id
        alone = p95(plane, worker_id)

        test = request("POST", f"/v1/webhook_endpoints/{endpoint}/test", b'{"event_type":"batch.failed"}')
        bursts = {
            "webhook tests": (test, 200, 5.0),
            "readiness": (request("GET", "/readyz"), 100, 1.0),
            "lists": (request("GET", "/v1/events?limit=1000"), 25, 0.3),
            "streams": (request("GET", f"/v1/batches/{batch}/events"), 100, 1.0),
        }
        found, answers = {}, {}
        for name, (sent, callers, rest) in bursts.items():
            with Burst(api.url, sent, callers, rest) as burst:
                until(lambda burst=burst, callers=callers: burst.begun >= callers, seconds=START_SECONDS)
                found[name] = p95(plane, worker_id)
            answers[name] = set(burst.statuses)
        plane.close()
    bound = max(3 * alone, SLOW_SECONDS)
    assert {name: seconds for name, seconds in found.items() if seconds > bound} == {}, f"alone {alone:.3f}"
    assert answers["webhook tests"] <= {400, 429}
    assert answers["readiness"] == answers["lists"] == {200}
