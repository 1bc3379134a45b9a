"""Three GPU machines, each in a network of its own, installed from the wheel and started by their unit.

One of them is cut off without a word: packets vanish, and no socket is told. Times are logged by `make test-hosts`.
"""

from collections import defaultdict
from typing import Any

import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import until
from tests.hosts.hosted import GPUS, TOLERATION_SECONDS, HostedYard, figures, now

ROWS = 1000
SLOW = "latency_ms=400"
LATE_SECONDS = 30.0
"""What a busy machine may add to any bound."""
CUTS = pytest.mark.parametrize("others", [("yard",), ("yard", "broker")], ids=["from-the-api", "from-everything"])


def types(events: list[dict[str, Any]]) -> set[str]:
    return {event["type"] for event in events}


def lost_leases(yard: HostedYard, batch_id: str, gpu: str) -> dict[int, dict[str, float]]:
    """Of each job whose lease `gpu` lost: when that lease expired, and when the job was granted again."""
    lease_of: dict[int, tuple[str, int]] = {}
    grants: dict[int, list[float]] = defaultdict(list)
    found: dict[int, dict[str, float]] = {}
    events = yard.events(batch_id)
    for event in events:
        if event["type"] == "lease.granted":
            for lease, job in zip(event["data"]["leases"], event["data"]["jobs"], strict=True):
                lease_of[lease] = (event["data"]["worker"], job)
                grants[job].append(event["at"])
    for event in events:
        if event["type"] == "lease.expired":
            worker, job = lease_of[event["data"]["lease"]]
            if worker == gpu:
                again = [at for at in grants[job] if at >= event["at"]]
                found[job] = {"expired": event["at"], "again": again[0] if again else 0.0}
    return found


def holders(yard: HostedYard, batch_id: str) -> set[str]:
    """Which GPU workers were ever granted shards of a batch; control work is granted, too."""
    granted = [event for event in yard.events(batch_id) if event["type"] == "lease.granted"]
    return {event["data"]["worker"] for event in granted} & set(GPUS)


def run_through(yard: HostedYard, prefix: str, rows: int = 600) -> None:
    """A batch, to its end, by all three."""
    before = {name: gpu.rows_run() for name, gpu in yard.gpus.items()}
    batch = yard.submit(marked(prefix, rows, "latency_ms=100"))
    batch.ended(seconds=120)
    assert_each_row_once(batch, prefix, rows)
    assert holders(yard, batch.id) == set(GPUS)
    assert all(gpu.rows_run() > before[name] for name, gpu in yard.gpus.items())


def test_a_batch_runs_over_all_three(yard: HostedYard) -> None:
    run_through(yard, "three")
    workers = yard.http.get("/v1/workers").json()["data"]
    assert {worker["name"] for worker in workers if worker["pool"] == "gpu"} == set(GPUS)


@CUTS
def test_one_that_is_cut_off_for_less_than_its_lease_keeps_it_and_no_row_runs_twice(
    yard: HostedYard, others: tuple[str, ...]
) -> None:
    prefix = f"short-{len(others)}"
    ran = yard.rows_run()
    batch = yard.submit(marked(prefix, ROWS, SLOW))
    until(lambda: len(holders(yard, batch.id)) == len(GPUS), "all three are at it")
    with figures(f"cut off {others}, briefly") as times:
        with yard.network.cut("gpu2", *others):
            cut_at = now()
            times["offline"] = yard.noted("gpu2", "worker.offline", after=cut_at) - cut_at
        mended_at = now()
        times["cut"] = mended_at - cut_at
        times["online again"] = yard.noted("gpu2", "worker.online", after=mended_at - 1) - mended_at
        batch.ended(seconds=180)
    assert_each_row_once(batch, prefix, ROWS)
    assert "lease.expired" not in types(yard.events(batch.id))
    assert yard.rows_run() - ran == ROWS
    assert yard.gpus["gpu2"].worker.alive
    run_through(yard, f"{prefix}-after")


@CUTS
def test_the_shards_of_one_that_is_cut_off_for_longer_are_run_by_others_and_it_comes_back_by_itself(
    yard: HostedYard, others: tuple[str, ...]
) -> None:
    prefix = f"long-{len(others)}"
    batch = yard.submit(marked(prefix, ROWS, SLOW))
    until(lambda: len(holders(yard, batch.id)) == len(GPUS), "all three are at it")
    with figures(f"cut off {others}, for longer") as times:
        with yard.network.cut("gpu2", *others):
            cut_at = now()
            batch.ended(seconds=TOLERATION_SECONDS + 4 * LATE_SECONDS)
            times["ended"] = now() - cut_at
        mended_at = now()
        lost = lost_leases(yard, batch.id, "gpu2")
        gave_up_at = yard.gpus["gpu2"].moments("lease.self_stopped", since=cut_at)
        times["gave up"] = max(gave_up_at) - cut_at
        times["expired"] = min(job["expired"] for job in lost.values()) - cut_at
        times["taken over"] = max(job["again"] for job in lost.values()) - cut_at
        times["online again"] = yard.noted("gpu2", "worker.online", after=mended_at - 1) - mended_at
        run_through(yard, f"{prefix}-after")
        times["a batch over all three later"] = now() - mended_at
    assert_each_row_once(batch, prefix, ROWS)
    assert max(gave_up_at) <= min(job["expired"] for job in lost.values()), "it runs no row that others may run"
    assert times["expired"] > TOLERATION_SECONDS - 4, "a beat was answered at most 1.2 renewals before the cut"
    assert times["taken over"] < TOLERATION_SECONDS + LATE_SECONDS
    assert times["online again"] < LATE_SECONDS
    assert yard.gpus["gpu2"].worker.alive


def test_one_that_is_cut_off_from_the_broker_alone_works_on_by_what_heartbeats_say(yard: HostedYard) -> None:
    """When Celery gives the dead connection up and the worker polls is Celery's own affair: a minute, or many."""
    with yard.network.cut("gpu2", "broker"):
        cut_at = now()
        batch = yard.submit(marked("bells", ROWS, SLOW))
        batch.ended(seconds=180)
        assert holders(yard, batch.id) == set(GPUS)
    assert_each_row_once(batch, "bells", ROWS)
    assert types(yard.events(batch.id)).isdisjoint({"lease.expired", "lease.released"})
    assert "worker.offline" not in types([each for each in yard.events_of("gpu2") if each["at"] > cut_at])
    assert yard.gpus["gpu2"].worker.alive
    run_through(yard, "bells-after")
