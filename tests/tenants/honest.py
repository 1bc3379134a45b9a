"""The honest org and the operator: heartbeats that are timed, and what people look at meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from tests.e2e.yard import Yard

BEATS_A_SECOND = 10
"""They begin by the clock, however long those before them take: what is slow is not asked less often."""
BEATERS = 4
LOOK_SECONDS = 0.5
LOOKS = ("/v1/workers", "/v1/batches", "/v1/files", "/v1/pools", "/v1/models", "/healthz")
OPERATORS = ("/metrics", "/v1/workers", "/readyz", "/v1/orgs")
CALL_SECONDS = 60.0


def keys_of(yard: Yard, org: str, *scopes: str) -> list[str]:
    """Make an org with a key for each of these scopes."""
    _posted(yard.http, "/v1/orgs", {"name": org})
    wanted = ({"name": scope, "scopes": [scope], "org": org} for scope in scopes)
    return [str(_posted(yard.http, "/v1/tokens", token)["secret"]) for token in wanted]


def with_key(yard: Yard, key: str) -> httpx.Client:
    """A client of its own, with room for all that is under way."""
    headers = {"authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    return httpx.Client(base_url=yard.url, headers=headers, timeout=CALL_SECONDS, limits=limits)


@dataclass
class Timed:
    """Calls, by how they were answered, and the seconds that each took from when it was due."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def p95(self) -> float:
        """In milliseconds."""
        return 1000 * sorted(self.seconds)[int(0.95 * len(self.seconds))]

    def call(self, http: httpx.Client, method: str, path: str, body: Any = None, *, due: float | None = None) -> None:
        """Make one and note it."""
        due = time.monotonic() if due is None else due
        try:
            status = str(http.request(method, path, json=body).status_code)
        except httpx.HTTPError as error:
            status = type(error).__name__
        self.seconds.append(time.monotonic() - due)
        self.statuses[f"{status}" if status.startswith("2") else f"{status} {path}"] += 1


class Heartbeats:
    """Workers of the org that boot and take no work: nothing but heartbeats comes of them."""

    def __init__(self, http: httpx.Client, pool: str) -> None:
        self._http = http
        self._ids = [self._registered(f"beater-{number}", pool) for number in range(BEATERS)]

    def _registered(self, name: str, pool: str) -> str:
        hello = {"name": name, "install_id": name, "boot_id": "b", "pool": pool, "transport": "http"}
        return str(_posted(self._http, "/workers/register", hello | {"phase": "booting"})["worker_id"])

    def during(self, seconds: float) -> Timed:
        """Send them for so long."""
        timed = Timed()
        began = time.monotonic()
        with ThreadPoolExecutor(64) as threads:
            for number in count():
                due = began + number / BEATS_A_SECOND
                if due > began + seconds:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                path = f"/workers/{self._ids[number % BEATERS]}/heartbeat"
                threads.submit(timed.call, self._http, "POST", path, {"boot_id": "b", "phase": "booting"}, due=due)
        return timed


@contextmanager
def looking(http: httpx.Client, paths: Sequence[str]) -> Iterator[Timed]:
    """Look at these in turn while the block runs."""
    timed, ended = Timed(), threading.Event()

    def look() -> None:
        for number in count():
            timed.call(http, "GET", paths[number % len(paths)])
            if ended.wait(LOOK_SECONDS):
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield timed
    finally:
        ended.set()
        thread.join(CALL_SECONDS)


def _posted(http: httpx.Client, path: str, body: object) -> dict[str, Any]:
    answer = http.post(path, json=body)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found
