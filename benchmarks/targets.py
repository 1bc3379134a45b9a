"""The targets: what `make bench` must reach now, what is aimed at, and what CI accepts on a noisy machine.

`must` is the gate of `make bench`, `goal` is where it should go, `loose` is the gate of `make bench-quick`: a ratio
that only a real regression misses. None: there is no such gate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self


@dataclass(frozen=True)
class Target:
    """One figure that is judged. At least its bound, or at most with `at_most`."""

    key: str
    what: str
    must: float | None
    goal: float
    loose: float | None = None
    at_most: bool = False

    def met(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound

    def shown(self, bound: float | None) -> str:
        return "" if bound is None else f"{'≤' if self.at_most else '≥'} {bound:g}"


_ALL = (
    Target("P0", "the mock engine's ceiling, x the fastest Python client", must=10, goal=10),
    Target("P1.64", "share of a 64 x 50 ms engine, 72 in flight", must=0.96, goal=0.985, loose=0.8),
    Target("P1.256", "share of a 256 x 200 ms engine, 288 in flight", must=0.94, goal=0.975),
    Target("P2.aiohttp", "whole job, x aiohttp with 72 in flight", must=0.95, goal=0.99, loose=0.75),
    Target("P2.openai", "whole job, x AsyncOpenAI + semaphore", must=1.6, goal=1.6),
    Target("P2.litellm", "whole job, x litellm.batch_completion", must=4, goal=4),
    Target("P2.celery", "whole job, x Celery, a task a row", must=2.8, goal=2.8),
    Target("P2.httpx", "whole job, x one httpx.AsyncClient", must=9, goal=9),
    Target("P2.vllm", "rows of a real vLLM, x `vllm run-batch`", must=None, goal=1),
    Target("P3.aiohttp", "CPU a row of the worker, x aiohttp", must=1.0, goal=0.6, loose=2.0, at_most=True),
    Target("P3.openai", "CPU a row of the worker, x AsyncOpenAI", must=0.2, goal=0.12, at_most=True),
    Target("P3.celery", "CPU a row of the worker, x Celery's worker", must=0.12, goal=0.07, at_most=True),
    Target("P4.64", "auto: share of a 64 x 50 ms engine", must=0.9, goal=0.95, loose=0.35),
    Target("P4.256", "auto: share of a 256 x 200 ms engine", must=0.85, goal=0.92),
    Target("P4.8", "auto: share of an 8 x 100 ms engine", must=0.95, goal=0.97),
    Target("P4.queue", "auto: rows waiting in the engine after the ramp, x its slots", must=1, goal=1, at_most=True),
    Target("P5.rate", "rate with one straggler in 1,000, x without", must=0.97, goal=0.97),
    Target("P5.memory", "worker's peak memory with stragglers, x without", must=1.15, goal=1.15, at_most=True),
    Target("P6.worker", "worker's peak memory, 1,000,000 rows x 10,000", must=1.25, goal=1.25, at_most=True),
    Target("P6.control", "control worker's peak memory, the same", must=1.25, goal=1.25, at_most=True),
    Target("P6.api", "API's peak memory, the same", must=1.25, goal=1.25, at_most=True),
    Target("P8.p50", "create to first row, x Celery's publish to start, p50", must=25, goal=12, at_most=True),
    Target("P8.p99", "the same, p99", must=25, goal=12, at_most=True),
    Target("P10.operations", "SQL, broker and blob operations a row", must=0.03, goal=0.01, at_most=True),
    Target("P10.validation", "upload and validation, x reading the JSON", must=5, goal=3, loose=10, at_most=True),
    Target("P11", "4 workers, 4 engines, x one", must=3.5, goal=3.8),
    Target("P13.claim", "claim p99 with 1,000,000 jobs, x with 1,000", must=3, goal=3, at_most=True),
    Target("P13.sweep", "seconds of one sweep pass at that size", must=None, goal=1, at_most=True),
    Target("P14.download", "rate of a download, x one of a content without checksums", must=0.9, goal=1),
)
TARGETS = {target.key: target for target in _ALL}


@dataclass(frozen=True)
class Finding:
    """What was measured for one target, with what it came from."""

    key: str
    value: float
    rounds: tuple[float, ...] = ()

    @classmethod
    def of(cls, key: str, rounds: Sequence[float]) -> Self:
        """Tell the median of several rounds."""
        return cls(key, median(rounds), tuple(rounds))

    @property
    def target(self) -> Target:
        return TARGETS[self.key]

    def verdict(self, *, loose: bool) -> bool | None:
        """Whether its gate is met; None when there is none."""
        bound = self.target.loose if loose else self.target.must
        return None if bound is None else self.target.met(self.value, bound)
