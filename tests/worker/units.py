"""Rows to queue, and runtimes that group and bound them."""

import json
import time
from collections.abc import Callable, Hashable
from typing import ClassVar

from app.domain.rows import Row
from app.domain.runtimes import RuntimeFacts, ServedModel
from app.schemas.claims import Grant
from app.worker.backlog import Backlog
from app.worker.row_queue import RowQueue
from app.worker.runtimes import Runtimes
from app.worker.shard import Shard
from app.worker.units import Unit
from tests.fakes.steered_executor import SteeredExecutor

ENDPOINT = "/v1/chat/completions"


class Clock:
    """Time as a test tells it, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Grouping(SteeredExecutor):
    """Loads anew for each `options`, and works on one row at a time unless told otherwise."""

    one_group_at_a_time: ClassVar[bool] = True

    def __init__(self, *, models: tuple[str, ...] = ("fake",), limit: int | None = None) -> None:
        super().__init__()
        self.models = models
        self.most = limit

    def probe(self) -> RuntimeFacts:
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=self.alive,
            models=tuple(ServedModel(model) for model in self.models),
            endpoints=(ENDPOINT,),
        )

    def group(self, row: Row) -> Hashable:
        return (row.model, json.loads(row.body).get("options"))

    def limit(self, row: Row) -> int | None:  # noqa: ARG002 - the same for all
        return self.most


class Parallel(Grouping):
    one_group_at_a_time: ClassVar[bool] = False


def shard(lease_id: int = 1) -> Shard:
    class Nobody:
        def hold(self, reason: str) -> None: ...

        def let_go(self, reason: str) -> None: ...

    grant = Grant(lease_id=lease_id, job_id=1, number=0, first_row=0, rows=1, start=0, end=1, done="")
    return Shard(grant, Backlog(Nobody()), lambda _shard: None)


ONE = shard()


def unit(number: int, *, model: str = "fake", options: int | None = None, of: Shard = ONE) -> Unit:
    body = json.dumps({"options": options}).encode()
    return Unit(of, Row(number, f"row-{number}", ENDPOINT, model, body))


def runtimes_of(*executors: SteeredExecutor, clock: Callable[[], float] = time.monotonic) -> Runtimes:
    runtimes = Runtimes(executors, clock)
    runtimes.probe()
    return runtimes


def queue_of(*executors: SteeredExecutor) -> RowQueue:
    return RowQueue(runtimes_of(*executors or (SteeredExecutor(),)))
