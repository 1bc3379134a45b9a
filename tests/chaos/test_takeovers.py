"""How long a shard lay idle, by the events: what the kill test bounds."""

from typing import Any

import pytest

from tests.chaos.forms import Kind
from tests.chaos.happening import Happened
from tests.chaos.schedule import Fault
from tests.chaos.takeovers import Takeover, takeovers


def granted(at: float, worker: str, **jobs: int) -> dict[str, Any]:
    leases = [int(name.removeprefix("lease_")) for name in jobs]
    return {
        "type": "lease.granted",
        "at": at,
        "data": {"leases": leases, "jobs": list(jobs.values()), "worker": worker},
    }


def freed(at: float, lease: int, kind: str) -> dict[str, Any]:
    return {"type": kind, "at": at, "data": {"lease": lease}}


def found(kind: Kind, of_batch: list[dict[str, Any]], hello: float = 0.0) -> list[Takeover]:
    met = Happened(Fault(0, kind, "south", 1.0), "south", at=100.0, stored=0)
    of_workers = {"south": [{"type": "worker.hello", "at": hello}], "north": []}
    return takeovers([met], of_batch, of_workers, [])


def test_a_released_shard_waits_from_its_release() -> None:
    events = [granted(90, "south", lease_1=7), freed(101, 1, "lease.released"), granted(103.5, "west", lease_2=7)]
    assert [each.waited for each in found(Kind.DRAIN, events)] == [2.5]


def test_it_is_first_in_line_when_all_before_it_were_taken_and_no_sooner() -> None:
    events = [
        granted(90, "south", lease_1=7),
        freed(101, 1, "lease.released"),
        granted(101.5, "west", lease_2=8),  # one behind it
        granted(102.5, "west", lease_3=3),
        granted(103.0, "east", lease_4=5),
        granted(103.5, "west", lease_5=7),
        granted(104.0, "west", lease_6=4),  # after it
    ]
    assert [each.waited for each in found(Kind.DRAIN, events)] == [pytest.approx(0.5)]


def test_after_a_restart_it_waits_from_the_hello() -> None:
    events = [granted(90, "south", lease_1=7), freed(103.1, 1, "lease.expired"), granted(104.0, "west", lease_2=7)]
    assert [each.waited for each in found(Kind.RESTART, events, hello=103.0)] == [1.0]


def test_after_a_silence_the_whole_time_counts() -> None:
    events = [
        granted(90, "south", lease_1=7),
        freed(120, 1, "lease.expired"),
        granted(121, "west", lease_2=3),
        granted(122, "west", lease_3=7),
    ]
    assert [each.waited for each in found(Kind.DEATH, events)] == [22.0]
