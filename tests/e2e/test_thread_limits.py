"""A worker whose host lets it start no thread: it takes nothing, says why, and works again once it can."""

import resource
from typing import Any

import psutil
import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 300
TRIES_SECONDS = 12.0
"""Without a limit on tries a worker takes and returns two leases per second."""


def allow_no_threads(pid: int) -> None:
    """Leave room for small allocations and none for the stack of a thread."""
    room = psutil.Process(pid).memory_info().vms + 2**22
    resource.prlimit(pid, resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))


def granted_to(yard: Yard, batch_id: str, worker: str) -> list[dict[str, Any]]:
    """The grants of a batch's shards to this worker."""
    granted = [event for event in yard.events(batch_id) if event["type"] == "lease.granted"]
    return [event for event in granted if event["data"]["worker"] == worker]


@pytest.mark.parametrize("transport", ["celery", "http"])
def test_a_worker_that_can_start_no_thread_takes_nothing_and_works_once_it_can(
    shared_yard: Yard, transport: str
) -> None:
    yard, name = shared_yard, f"threadless-{transport}"
    yard.http.post("/v1/pools", json={"name": name}).raise_for_status()
    process = yard.worker(name, pool=name, transport=transport)
    yard.until_present(name)
    allow_no_threads(process.pid)
    batch = yard.submit(marked(name, ROWS), pool=name)

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = yard.http.get(f"/v1/workers/{name}").json()
        return found

    until(lambda: "thread" in (shown().get("no_lease_text") or ""), "the worker says that it cannot start threads")
    assert shown()["no_lease"] == "phase"

    begun = shown()["last_seen_at"]
    until(lambda: shown()["last_seen_at"] > begun + TRIES_SECONDS, "it is heard of while it tries again and again")
    assert len(granted_to(yard, batch.id, name)) <= 1
    resource.prlimit(process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    batch.ended(seconds=60)
    assert_each_row_once(batch, name, ROWS)
