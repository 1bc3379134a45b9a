"""P10: what the control plane does for a row, counted where it is done; and upload with validation beside bare JSON."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psycopg

from benchmarks.engine_process import Shape, engine
from benchmarks.inputs import input_file
from benchmarks.product import Product
from benchmarks.runs import Run
from benchmarks.targets import Finding
from tests.cluster import Cluster

FAST = Shape(256, 5)
PROMPTS = 64
SETTLE_SECONDS = 12
"""PostgreSQL's processes tell their counts ten seconds after their last statement at the latest."""
ROW_BYTES = 4096
_BARE_JSON = """
import json, sys, time
start = time.perf_counter()
with open(sys.argv[1], "rb") as lines:
    for line in lines:
        json.loads(line)
print(time.perf_counter() - start)
"""


class _Counts(NamedTuple):
    at: float
    transactions: int
    commands: int
    blobs: int


@dataclass(frozen=True)
class Operations:
    """Of one batch; what an idle installation does in the same time is taken off."""

    rows: int
    transactions: float
    commands: float
    blob_calls: float
    run: Run

    @property
    def a_row(self) -> float:
        return (self.transactions + self.commands + self.blob_calls) / self.rows


def operations(folder: Path, rows: int) -> tuple[list[Finding], Operations]:
    """Run one batch on PostgreSQL, where transactions are counted by the server."""
    cluster = Cluster()
    try:
        name = cluster.create()
        url = cluster.url(name)
        with Product(folder, database_url=url) as product, engine(FAST) as running:
            product.start()
            with product.gpu_worker("counted", running, prompts=PROMPTS) as pid:
                found = _counted(product, _Counter(product, url, name), {"worker": running}, {"worker": pid}, rows)
    finally:
        cluster.stop()
    return [Finding("P10.operations", found.a_row)], found


def _counted(product: Product, counter: "_Counter", engines: dict, pids: dict, rows: int) -> Operations:  # type: ignore[type-arg]
    time.sleep(SETTLE_SECONDS)
    before_idle = counter.read()
    time.sleep(SETTLE_SECONDS)
    idle = counter.read()
    run = product.measure("gpuyard on PostgreSQL", engines, pids, input_file(rows), rows)
    time.sleep(SETTLE_SECONDS)
    after = counter.read()

    def ours(what: Callable[[_Counts], int]) -> float:
        rate = (what(idle) - what(before_idle)) / (idle.at - before_idle.at)
        return what(after) - what(idle) - rate * (after.at - idle.at)

    reads = counter.blob_reads(run.more["batch"])
    return Operations(
        rows=rows,
        transactions=ours(lambda counts: counts.transactions),
        commands=ours(lambda counts: counts.commands),
        blob_calls=after.blobs - idle.blobs + reads,
        run=run,
    )


class _Counter:
    def __init__(self, product: Product, url: str, database: str) -> None:
        self._product = product
        self._url = url.replace("+psycopg", "")
        self._database = database

    def read(self) -> _Counts:
        commits = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(commits, (self._database,)).fetchone()
        assert row is not None  # noqa: S101 - the database we are connected to
        commands = int(self._product.redis.info("stats")["total_commands_processed"])
        blobs = sum(1 for path in (self._product.installation.data / "blobs").rglob("*") if path.is_file())
        return _Counts(time.monotonic(), int(row[0]), commands, blobs)

    def blob_reads(self, batch_id: str) -> int:
        """Count what was read: the input by validation and by each lease, each segment once, by finalizing."""
        of = "(SELECT count(*) FROM {} WHERE batch_id = %s)"
        query = f"SELECT {of.format('segment')} + {of.format('lease')}"
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(query, (batch_id, batch_id)).fetchone()
        assert row is not None  # noqa: S101 - an aggregate gives a row
        return int(row[0]) + 1


def validation(product: Product, *, rounds: int, rows: int) -> list[Finding]:
    """Measure from the first byte sent to `validated`, and a bare `json.loads` of every line in turn."""
    file = input_file(rows, ROW_BYTES)
    product.ensure_pool("nobody")
    ratios = []
    for _ in range(rounds):
        began = time.time()
        batch_id = product.create(product.upload(file), pool="nobody")
        ours = product.moment(batch_id, "batch.validated") - began
        product.sdk.batches.cancel(batch_id)
        # Its end reads the input again and writes a line a row: work that the next round must not share a core with.
        product.moment(batch_id, "batch.cancelled")
        ratios.append(ours / _bare_pass(file))
    return [Finding.of("P10.validation", ratios)]


def _bare_pass(file: Path) -> float:
    done = subprocess.run([sys.executable, "-c", _BARE_JSON, str(file)], check=True, capture_output=True, timeout=300)
    return float(json.loads(done.stdout))
