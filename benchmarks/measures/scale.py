"""P13 by simulation on PostgreSQL: 1,000,000 queued jobs, 10,000 workers, 20,000 live leases.

Rows are copies of real ones, made by the services, so that they are what the services expect; claims and sweeps are the
services' own. Nothing of it runs a row.
"""

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Table, text
from sqlmodel import Session, SQLModel

from app.db.store import Store
from app.db.tables import Batch, Job, Lease, Worker
from app.schemas.claims import ClaimRequest
from app.services import claims
from app.services.context import Yard
from app.sweeps.election import LIMIT, SWEEPS
from benchmarks.measures.latency import at
from benchmarks.targets import Finding
from tests import yards
from tests.cluster import Cluster
from tests.migrated import migrate

JOBS_A_BATCH = 200
LEASES_A_BATCH = 4
LEASES_A_WORKER = 2
WORKERS_A_BATCH = LEASES_A_BATCH // LEASES_A_WORKER
CLAIMS = 300
WANT_ROWS = 8


@dataclass(frozen=True)
class Size:
    """So many batches, each with two workers on it, and so many workers that hold nothing."""

    batches: int
    idle: int


SMALL = Size(batches=5, idle=100)
LARGE = Size(batches=5000, idle=500)


@dataclass(frozen=True)
class Scale:
    """What was measured at one size, in seconds."""

    jobs: int
    fresh: list[float]
    running: list[float]
    sweeps: Mapping[str, float]
    fill_seconds: float

    def as_json(self) -> dict[str, Any]:
        claims = {
            f"{kind}_{name}_ms": round(at(found, part) * 1000, 2)
            for kind, found in (("fresh", self.fresh), ("running", self.running))
            for name, part in (("p50", 0.5), ("p99", 0.99))
        }
        return {"jobs": self.jobs, **claims, "sweeps_seconds": self.sweeps, "fill_seconds": self.fill_seconds}


def scale(large: Size = LARGE) -> tuple[list[Finding], list[Scale]]:
    """Measure claims and sweeps at both sizes, on a database each."""
    cluster = Cluster()
    try:
        found = [_measured(cluster, size) for size in (SMALL, large)]
    finally:
        cluster.stop()
    small, big = found
    ratios = [at(big.fresh, 0.99) / at(small.fresh, 0.99), at(big.running, 0.99) / at(small.running, 0.99)]
    return [
        Finding("P13.claim", max(ratios), tuple(ratios)),
        Finding("P13.sweep", max(big.sweeps.values()), tuple(big.sweeps.values())),
    ], found


def _measured(cluster: Cluster, size: Size) -> Scale:
    url = cluster.url(cluster.create())
    migrate(url)
    store = Store(url)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yard = yards.new_yard(store, Path(folder))
            began = time.perf_counter()
            workers = _fill(yard, size)
            filled = time.perf_counter() - began
            chance = random.Random(13)
            fresh = [
                _claim(yard, worker, None) for worker in chance.sample(workers.idle, min(CLAIMS, len(workers.idle)))
            ]
            busy = chance.choices(workers.busy, k=CLAIMS)
            running = [_claim(yard, worker, batch) for worker, batch in busy]
            sweeps = {name: _timed(partial(sweep, yard, LIMIT)) for name, sweep in SWEEPS.items()}
            return Scale(size.batches * JOBS_A_BATCH, fresh, running, sweeps, filled)
    finally:
        store.close()


@dataclass(frozen=True)
class _Workers:
    idle: list[str]
    busy: list[tuple[str, str]]  # with the batch that each works on


def _fill(yard: Yard, size: Size) -> _Workers:
    batch_id = yards.validated(yard, JOBS_A_BATCH * yard.limits.shard_rows)
    machine = yards.Machine(yard)
    machine.hello()
    machine.beat()
    machine.claim(want=1)  # one shard: the lease that is copied
    with yard.store.begin() as session:
        template = _Template(session, batch_id, machine.id)
        template.copy(size)
    for table in ("batch", "job", "worker", "lease"):
        with yard.store.begin() as session:
            session.execute(text(f"ANALYZE {table}"))  # what autovacuum does within a minute
    return _Workers(
        idle=[f"w{n}" for n in range(size.batches * WORKERS_A_BATCH, size.batches * WORKERS_A_BATCH + size.idle)],
        busy=[(f"w{n}", f"b{n // WORKERS_A_BATCH}") for n in range(size.batches * WORKERS_A_BATCH)],
    )


class _Template:
    """One batch with its shards, one worker and one lease, and copies of them made by the database itself."""

    def __init__(self, session: Session, batch_id: str, worker_id: str) -> None:
        self._session = session
        self._batch = batch_id
        self._worker = worker_id

    def copy(self, size: Size) -> None:
        batch = {"id": "'b' || n.n", "live": str(LEASES_A_BATCH), "state": "'in_progress'"}
        self._insert(Batch, size.batches, f"t.id = '{self._batch}'", batch)
        held = f"CASE WHEN t.number < {LEASES_A_BATCH} THEN 'leased' ELSE 'queued' END"
        job = {"batch_id": "'b' || n.n", "state": held, "done_rows": "''"}
        self._insert(Job, size.batches, f"t.batch_id = '{self._batch}' AND t.kind = 'shard'", job)
        busy = size.batches * WORKERS_A_BATCH
        worker = {"id": "'w' || n.n", "name": "'w' || n.n", "install_id": "'i' || n.n", "holds": f"n.n < {busy}"}
        count = busy + size.idle
        self._insert(Worker, count, f"t.id = '{self._worker}'", worker)
        place = f"substr(j.batch_id, 2)::int * {LEASES_A_BATCH} + j.number"
        lease = {"job_id": "j.id", "batch_id": "j.batch_id", "worker_id": f"'w' || (({place}) / {LEASES_A_WORKER})"}
        columns = self._columns(Lease, lease)
        self._session.execute(
            text(
                f"INSERT INTO lease ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM lease t, job j "
                f"WHERE t.worker_id = '{self._worker}' AND j.state = 'leased' AND j.batch_id <> '{self._batch}'"
            )
        )

    def _insert(self, model: type[SQLModel], copies: int, where: str, new: Mapping[str, str]) -> None:
        columns = self._columns(model, new)
        table: Any = model
        self._session.execute(
            text(
                f"INSERT INTO {table.__tablename__} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
                f"FROM {table.__tablename__} t, generate_series(0, {copies - 1}) AS n(n) WHERE {where}"
            )
        )

    @staticmethod
    def _columns(model: type[SQLModel], new: Mapping[str, str]) -> dict[str, str]:
        table: Table = model.__table__  # type: ignore[attr-defined]
        counted = {"seq", "id"} if model in (Job, Lease) else {"seq"}
        quoted = {column.name: f'"{column.name}"' for column in table.columns if column.name not in counted}
        return {name: new.get(plain, f"t.{name}") for plain, name in quoted.items()}


def _claim(yard: Yard, worker_id: str, batch_id: str | None) -> float:
    with yard.store.read() as session:
        worker = session.get(Worker, worker_id)
        assert worker is not None  # noqa: S101 - it was copied above
        boot_id = worker.boot_id
    asked = ClaimRequest(
        worker_id=worker_id,
        boot_id=boot_id,
        request_id=uuid4().hex,
        batch_id=batch_id,
        started=batch_id is not None,
        want_rows=WANT_ROWS,
    )
    return _timed(lambda: claims.claim(yard, yards.USER, asked))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
