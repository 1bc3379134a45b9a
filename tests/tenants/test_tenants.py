"""One org tries every bound at the same time; another one does not notice."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.cluster import Cluster
from tests.e2e.rows import CHAT, known, lines, right_lines
from tests.e2e.submitted import ENDED, Submitted
from tests.e2e.yard import PROMPTS, Yard
from tests.fakes.runtime_process import RuntimeProcess, start_runtime
from tests.tenants.attack import ATTACKS
from tests.tenants.honest import LOOKS, OPERATORS, Heartbeats, Timed, keys_of, looking, with_key
from tests.tenants.hostile import Plan

ATTACK_SECONDS = float(os.environ.get("GPUYARD_TEST_ATTACK_SECONDS", "20"))
FULL_SECONDS = 60.0
CHOSEN = [name for name in ATTACKS if os.environ.get("GPUYARD_TEST_ATTACKS", "") in name]
"""To find what slows the service down, make one of them alone."""
ALONE_SECONDS = max(10.0, ATTACK_SECONDS / 2)
LATENCY_MS = 250
ROWS = int((ALONE_SECONDS + ATTACK_SECONDS) * PROMPTS * 1000 / LATENCY_MS * 0.8)
"""The worker is at them the whole time, and nearly through when the attack is."""
END_SECONDS, CLOSE_SECONDS = 240.0, 60.0
LEAST_MS, ALONE_MS = 250.0, 15.0
"""The bound, and what heartbeats alone take on a quiet machine; the short form grants a slower one so much more."""
POOL, WORKER = "honest", "honest-1"
QUOTAS = {"org_files": 20, "org_batches": 15, "org_pools": 20, "org_webhook_endpoints": 10}
NO_500 = r"(?!50[024]\b).*"
REFUSED = r"4\d\d\b.*"
ALLOWED: Mapping[str, str] = {
    "pools with absurd timings": REFUSED,
    "/readyz without a key": r"200|429.*",
    "hand-ins of 200 MiB without a worker": rf"{REFUSED}|closed",
    "500 event streams": "200|429|open",
    "downloads that stall": "200|429|open",
    "another org's worker": REFUSED,
    "other workers' leases": rf"(?!.* taken){NO_500}",
    "control work": REFUSED,
    "drains of another org's worker": REFUSED,
    "heartbeats of 2 MiB and of 16": rf"{REFUSED}|closed",
    "hand-ins with a header of 4 MiB": REFUSED,
    "bodies that do not go on": "429|open",
}
"""What each call may be answered; of what is not named here, anything but a 500."""
BOUND: Mapping[str, str] = {
    "500 event streams": "429",
    "downloads that stall": "429",
    "uploads that do not go on": "429",
    "bodies that do not go on": "429",
    **{f"{what} up to the quota": "429 limit_reached" for what in ("pools", "webhook endpoints", "files", "batches")},
}
"""What it must be answered at least once."""
log = logging.getLogger("figures")


class Table:
    """Lines of what was found and what is allowed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed: list[str] = []

    def add(self, what: str, found: object, allowed: str, *, holds: bool) -> None:
        """Add a line."""
        self.lines.append(f"{'ok ' if holds else 'NOT'} | {what} | {found} | {allowed}")
        if not holds:
            self.failed.append(self.lines[-1])

    def honest(self, what: str, timed: Timed) -> None:
        """The honest org is refused nothing."""
        right = all(status.startswith("2") for status in timed.statuses)
        self.add(what, dict(timed.statuses), "2xx", holds=right and bool(timed.statuses))

    def hostile(self, name: str, seen: Mapping[str, int]) -> None:
        """What a hostile org's calls were answered."""
        allowed, bound = ALLOWED.get(name, NO_500), BOUND.get(name)
        holds = bool(seen) and all(re.fullmatch(allowed, label) for label in seen)
        reached = bound is None or any(re.fullmatch(bound, label) for label in seen)
        words = allowed.replace(NO_500, "no 500") + (f", and {bound}" if bound else "")
        self.add(name, dict(sorted(seen.items())), words, holds=holds and reached)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    url = None
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("postgres_cluster")
        url = cluster.url(cluster.create())
    with Yard(tmp_path, database_url=url, webhook_networks="127.0.0.0/8", **QUOTAS) as found:
        yield found.start()


@pytest.fixture
def engine(yard: Yard, tmp_path: Path) -> Iterator[RuntimeProcess]:
    found = start_runtime(tmp_path, "--latency-ms", LATENCY_MS, "--slots", 1000, spawn=yard.spawn_engine)
    yield found
    found.kill()


@pytest.fixture
def client(yard: Yard) -> Iterator[Callable[[str], httpx.Client]]:
    """Clients with a key each, closed at the end."""
    with ExitStack() as clients:
        yield lambda key: clients.enter_context(with_key(yard, key))


def submitted(http: httpx.Client, key: str) -> Submitted:
    """The honest org's batch."""
    sdk = OpenAI(base_url=f"{http.base_url}/v1", api_key=key, timeout=60, max_retries=2, http_client=http)
    file = sdk.files.create(file=("in.jsonl", lines(known("row", number) for number in range(ROWS))), purpose="batch")
    batch = sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h", extra_body={"pool": POOL})
    return Submitted(sdk, http, batch.id)


def attacked(yard: Yard, plan: Plan) -> "subprocess.Popen[str]":
    """Begin the attack."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.tenants.attack"],
        env=yard.installation.environment(),
        cwd=yard.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hostile_org_stops_slows_and_changes_nothing_of_an_honest_one(
    yard: Yard, engine: RuntimeProcess, client: Callable[[str], httpx.Client]
) -> None:
    admin, worker_key = keys_of(yard, "honest", "admin", "worker")
    hostile_admin, hostile_worker = keys_of(yard, "hostile", "admin", "worker")
    http = client(admin)
    http.post("/v1/pools", json={"name": POOL, "shared": False}).raise_for_status()
    yard.worker(WORKER, pool=POOL, api_key=worker_key, runtime_url=engine.url)
    yard.until_present(WORKER)
    honest_id = http.get(f"/v1/workers/{WORKER}").json()["id"]
    heartbeats = Heartbeats(client(worker_key), POOL)
    batch = submitted(http, admin)
    batch.stored(1)
    table, watch = Table(), Timed()
    with looking(http, LOOKS) as looks, looking(client(yard.ready["api_key"]), OPERATORS) as operator:
        alone = heartbeats.during(ALONE_SECONDS)
        plan = Plan(yard.url, ATTACK_SECONDS, hostile_admin, hostile_worker, honest_id, WORKER, CHOSEN)
        with attacked(yard, plan) as attack:
            assert attack.stdin is not None
            attack.stdin.write(json.dumps(asdict(plan)))
            attack.stdin.close()
            beside = heartbeats.during(ATTACK_SECONDS)
            watch.call(http, "GET", f"/v1/events?subject={batch.id}&limit=5")
            answered = attack.stdout.read() if attack.stdout else ""
            assert attack.wait(CLOSE_SECONDS) == 0, "the attack did not run to its end"
        seen = json.loads(answered)
        ended = batch.until(lambda found: found.status in ENDED, "the batch has ended", seconds=END_SECONDS)
    for name in CHOSEN:
        table.hostile(name, seen.get(name, {}))
    table.honest("heartbeats of the honest org, alone", alone)
    table.honest("heartbeats beside the hostile one", beside)
    table.honest("what the honest org looks at", looks)
    table.honest("what the operator looks at", operator)
    table.honest("its events", watch)
    slowness = max(1.0, alone.p95 / ALONE_MS) if ATTACK_SECONDS < FULL_SECONDS else 1.0
    bound = max(3 * alone.p95, LEAST_MS * slowness)
    p95 = f"{beside.p95:.0f} ms of {len(beside.seconds)}, alone {alone.p95:.0f} ms of {len(alone.seconds)}"
    table.add("p95 of its heartbeats", p95, f"≤ {bound:.0f} ms", holds=beside.p95 <= bound)
    right = batch.raw_output() == right_lines(batch.id, "row", ROWS)
    table.add("its batch", f"{ended.status}, {ended.request_counts}", "every row right", holds=right)
    text = "\n".join(table.lines)
    log.info("%s", text)
    assert not table.failed, text
