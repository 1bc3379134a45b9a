"""How long the work of a lost or leaving worker lay idle, by the events of the batch and of its workers."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.forms import LOSSES, OF_WORKERS, SILENT, Kind
from tests.chaos.happening import Happened

Event = dict[str, Any]
RETRY_SECONDS = 5.0
"""The longest pause between two tries of a call that nobody answers (`app/client/http.py`)."""
ENDS = {"lease.expired", "lease.released"}


@dataclass(frozen=True)
class Takeover:
    """One shard that a fault set free. Times are seconds after the fault; None: it never came to that."""

    met: Happened
    freed: float
    taken: float | None
    returned: float | None
    """When the same worker was there again: its first hello after the fault."""
    absent: float
    """How long the service itself was away before it was set free; its workers' leases last so much longer."""
    deaf: float
    """How long nobody could claim it after that, the API being away, with the pause before workers try again."""
    behind: float
    """How long shards that go before it were still waiting: workers that are full take one at a time."""

    @property
    def waited(self) -> float:
        """What is bounded: from the fault where only silence tells of it, else from when the worker said something."""
        until = (self.freed if self.taken is None else self.taken) - self.deaf
        if self.met.fault.kind in SILENT:
            return until - self.absent
        return until - self.behind - (self.freed if self.met.fault.kind is Kind.DRAIN else self.returned or 0)

    @property
    def span(self) -> tuple[float, float]:
        """From when to when it waited, in seconds of the wall clock."""
        ended = self.met.at + (self.freed if self.taken is None else self.taken)
        return ended - self.waited, ended


def takeovers(
    happened: Sequence[Happened],
    of_batch: Sequence[Event],
    of_workers: dict[str, Sequence[Event]],
    absences: Sequence[Event],
    first: Sequence[float] = (),
) -> list[Takeover]:
    """Match each end of a lease to the fault before it. Shards that a healthy worker gave back are not meant.

    `first`: when shards of batches were granted that go before this one.
    """
    granted: dict[int, tuple[str, int]] = {}
    grants: dict[int, list[float]] = defaultdict(list)
    for event in of_batch:
        if event["type"] == "lease.granted":
            for lease, job in zip(event["data"]["leases"], event["data"]["jobs"], strict=True):
                granted[lease] = (event["data"]["worker"], job)
                grants[job].append(event["at"])
    found = []
    for event in of_batch:
        if event["type"] not in ENDS:
            continue
        worker, job = granted[event["data"]["lease"]]
        met = _cause(happened, worker, event)
        if met is None:
            continue
        later = grants[job][bisect_left(grants[job], event["at"]) :]
        hello = next((e["at"] for e in of_workers[worker] if e["type"] == "worker.hello" and e["at"] > met.at), None)
        absent = sum(e["data"]["gap_seconds"] for e in absences if met.at < e["at"] <= event["at"])
        found.append(
            Takeover(
                met,
                freed=event["at"] - met.at,
                taken=later[0] - met.at if later else None,
                returned=hello - met.at if hello is not None else None,
                absent=absent,
                deaf=_deaf(happened, event["at"], later[0]) if later else 0,
                behind=_behind(grants, first, job, event["at"], later[0]) if later else 0,
            )
        )
    return found


def _behind(
    grants: Mapping[int, Sequence[float]], first: Sequence[float], job: int, freed_at: float, taken_at: float
) -> float:
    """Jobs are numbered by their rows, and taken in that order: what lies before it goes first."""
    before = [at for other in grants if other < job for at in grants[other]]
    return max((at for at in (*before, *first) if freed_at < at <= taken_at), default=freed_at) - freed_at


def _deaf(happened: Sequence[Happened], freed_at: float, taken_at: float) -> float:
    away = [(met.at, met.over_at or met.at) for met in happened if met.target == "api"]
    overlaps = [min(over, taken_at) - max(began, freed_at) for began, over in away]
    found = [overlap for overlap in overlaps if overlap > 0]
    return sum(found) + RETRY_SECONDS * len(found)


def _cause(happened: Sequence[Happened], worker: str, event: Event) -> Happened | None:
    before = [
        met for met in happened if met.target == worker and met.fault.kind in OF_WORKERS and met.at <= event["at"]
    ]
    if not before:
        return None
    met = before[-1]
    fits = met.fault.kind in LOSSES if event["type"] == "lease.expired" else met.fault.kind is Kind.DRAIN
    return met if fits else None
