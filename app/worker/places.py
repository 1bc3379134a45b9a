"""One runtime as the dispatcher sees it: what runs there, and whether more may."""

from collections.abc import Hashable

import structlog

from app.domain.rows import Row
from app.domain.runtimes import RuntimeFacts
from app.worker.breaker import Breaker
from app.worker.parameters import Unsupported
from app.worker.units import Run, Unit
from executors.base import BaseExecutor

log = structlog.get_logger("gpuyard.worker")


class Place:
    """Not thread-safe: `Ways.lock` guards it, but for reading `facts`."""

    __slots__ = (
        "answered_at",
        "breaker",
        "executor",
        "facts",
        "fetches",
        "is_limit_broken",
        "looked_at",
        "lot",
        "odd_since",
        "reserved_for",
        "runs",
        "served",
        "unsupported",
    )

    def __init__(self, executor: BaseExecutor, breaker: Breaker, *, fetches: bool = False) -> None:
        self.executor = executor
        self.breaker = breaker
        self.facts = RuntimeFacts(name=executor.name, kind=executor.kind, alive=False, reason="not looked at yet")
        self.unsupported: Unsupported = {}
        """As of its last probe."""
        self.looked_at = float("-inf")
        self.fetches = fetches
        """Whether it may be asked for models that it lacks."""
        self.is_limit_broken = False
        self.runs: set[Run] = set()
        self.served = 0
        self.answered_at = float("-inf")
        self.odd_since: float | None = None
        """Since when it has given only answers that may be a gateway's."""
        self.lot: Hashable = None
        """What its last row belonged to."""
        self.reserved_for: Unit | None = None
        """The row that is to run here alone: nothing else starts meanwhile."""

    def is_open(self) -> bool:
        """Whether a row may start, as far as the runtime's health goes."""
        return self.reserved_for is None and (self.breaker.is_closed or self.breaker.may_start())

    def has_room(self, row: Row) -> bool:
        """Whether it is below the limit for rows like this one."""
        try:
            limit = self.executor.limit(row)
        except Exception as error:  # noqa: BLE001 - a third party's executor must not cost a lane
            if not self.is_limit_broken:  # asked for with the lock held, many times a row
                log.warning("runtime.cannot_say_limit", runtime=self.executor.kind, why=repr(error)[:500])
            self.is_limit_broken = True
            limit = 1
        return limit is None or len(self.runs) < limit

    @property
    def load(self) -> int:
        """What "least in flight first" compares; among equals the one that has served less."""
        return (len(self.runs) << 48) + self.served

    def start(self, unit: Unit, now: float, *, is_alone: bool = False) -> Run:
        """Take a place for a row."""
        run = Run(unit, self, now, self.breaker.start(), is_alone)
        self.runs.add(run)
        self.served += 1
        self.lot = unit.lot
        return run

    def free(self, run: Run) -> None:
        """Give the place back."""
        self.runs.discard(run)
        if self.reserved_for is run.unit:
            self.reserved_for = None

    def others_hang(self, run: Run, now: float, timeout: float) -> bool:
        """Tell whether another row has been here for half its time and more."""
        return any(other is not run and now - other.began_at > timeout / 2 for other in self.runs)
