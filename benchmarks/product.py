"""gpuyard as its users run it, under measurement: the whole of `gpuyard up`, and GPU workers by Celery's own command.

Everything is on: order, hand-ins, leases, heartbeats, progress, fsync. Timings are the product's defaults.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from benchmarks.engine_process import Engine, Shape, start_engine
from benchmarks.inputs import check_output
from benchmarks.processes import Usage, peaks_mib, reset_peaks
from benchmarks.runs import Run
from tests.e2e.yard import CELERY as CELERY_COMMAND
from tests.e2e.yard import Yard, until

__all__ = ["CELERY_COMMAND", "POLL_SECONDS", "Product"]

LARGE = 10**10
QUICK = Shape(slots=1, latency_ms=1)
POLL_SECONDS = 0.02
ASK_SECONDS = 0.25


class Addressed(Protocol):
    """Whatever answers rows."""

    @property
    def url(self) -> str:
        """Where, without `/v1`."""
        ...


class Product(Yard):
    """One installation. `database_url` None means its own SQLite file."""

    def __init__(self, folder: Path, *, database_url: str | None = None, **settings: Any) -> None:
        raised: dict[str, Any] = {"max_rows": LARGE, "max_file_bytes": LARGE}
        super().__init__(folder, database_url=database_url, timing={}, **(raised | settings))

    def _start_runtime(self) -> Any:
        return start_engine(QUICK)  # nobody uses it: each measurement has an engine of its own

    @contextmanager
    def gpu_worker(
        self, name: str, engine: Addressed, *, prompts: int | str = "auto", pool: str = "gpu"
    ) -> Iterator[int]:
        """A GPU worker on `engine` while the block runs; gives its pid."""
        process = self.worker(name, pool=pool, runtime_url=engine.url, max_concurrent_prompts=prompts)
        self.until_present(name)
        try:
            yield process.pid
        finally:
            process.stop(seconds=60)

    def ensure_pool(self, name: str) -> None:
        """Make a pool, unless an earlier try has."""
        answer = self.http.post("/v1/pools", json={"name": name})
        if answer.status_code != 409:  # noqa: PLR2004 - HTTP: Conflict
            answer.raise_for_status()

    def upload(self, file: Path) -> str:
        """Upload by the stock SDK, which streams."""
        with file.open("rb") as content:
            return self.sdk.files.create(file=(file.name, content), purpose="batch", timeout=600).id

    def create(self, file_id: str, *, pool: str = "gpu") -> str:
        batch = self.sdk.batches.create(
            input_file_id=file_id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            extra_body={"pool": pool},
        )
        return batch.id

    def measure(
        self, client: str, engines: Mapping[str, Engine], pids: Mapping[str, int], file: Path, rows: int, **where: str
    ) -> Run:
        """Run `file` as one batch and check every answer; `engines` and `pids` are the workers', by name."""
        for engine in engines.values():
            engine.reset()
        watched = {part: self.pid(part) for part in ("api", "control", "broker", "beat")} | dict(pids)
        reset_peaks(watched)
        before = Usage.of(watched)
        began = time.time()
        batch_id = self.create(self.upload(file), **where)
        ended_at = self.until_ended(batch_id, list(engines.values()), rows)
        used = Usage.of(watched) - before
        peaks = peaks_mib(watched)
        self.check(batch_id, rows)
        stats = [found for engine in engines.values() if (found := engine.stats())["requests"]]
        first = min(found["first_at"] for found in stats)
        return Run(
            client=client,
            rows=rows,
            limit=sum(engine.shape.limit for engine in engines.values()),
            inside_seconds=max(found["last_at"] for found in stats) - first,
            whole_seconds=ended_at - first,
            cpu_seconds=used.seconds | {"everything": sum(used.seconds.values())},
            peak_mib=peaks,
            requests=sum(found["requests"] for found in stats),
            max_waiting=max(found["max_waiting"] for found in stats),
            end_to_end_seconds=ended_at - began,
            more={"batch": batch_id},
        )

    def until_ended(
        self,
        batch_id: str,
        engines: list[Engine],
        rows: int,
        *,
        seconds: float = 7200,
        every: float = ASK_SECONDS,
    ) -> float:
        """Wait for the end without asking the API much while it works: that would be work of ours in its account.

        Gives the moment (wall clock, by the event) at which the result files were there, however seldom it is asked.
        """
        until_asked = time.monotonic() + 5
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(every)
            if sum(engine.stats()["completed"] for engine in engines) < rows and time.monotonic() < until_asked:
                continue
            until_asked = time.monotonic() + 5
            batch = self.sdk.batches.retrieve(batch_id)
            if batch.status == "completed":
                return self.moment(batch_id, "batch.completed")
            if batch.status in {"failed", "cancelled", "expired"}:
                raise RuntimeError(f"the batch ended otherwise: {batch}")
        raise RuntimeError(f"batch {batch_id} had not ended after {seconds:g} s")

    def moment(self, batch_id: str, event: str) -> float:
        """When something happened to a batch, in seconds of the wall clock."""
        found = until(lambda: [e for e in self.events(batch_id) if e["type"] == event], f"{event} of {batch_id}")
        return float(found[-1]["at"])

    def check(self, batch_id: str, rows: int) -> None:
        """Read the result file back and look at every line."""
        output = self.sdk.batches.retrieve(batch_id).output_file_id
        with self.http.stream("GET", f"/v1/files/{output}/content") as answer:
            answer.raise_for_status()
            check_output(_lines(answer), rows, ordered=True)


def _lines(answer: httpx.Response) -> Iterator[bytes]:
    rest = b""
    for chunk in answer.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest
