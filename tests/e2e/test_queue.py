"""Messages and turns: what lies in the queue, who takes it, and what Flower shows of it."""

from typing import Any

import httpx
import pytest

from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


def test_flower_shows_the_worker_its_queue_and_the_task_with_the_batch_s_id(shared_yard: Yard) -> None:
    batch = shared_yard.submit(marked("flower", 4))
    batch.ended()
    with httpx.Client(base_url=shared_yard.ready["flower_url"], timeout=10) as flower:

        def tasks() -> dict[str, Any]:
            found: dict[str, Any] = flower.get("/api/tasks", params={"taskname": "run_batch", "limit": 1000}).json()
            return {uuid: task for uuid, task in found.items() if batch.id in (task["args"] or "")}

        rung = until(tasks, "Flower shows the batch's task")
        workers = until(lambda: flower.get("/api/workers", params={"refresh": 1}).json(), "Flower shows workers")

    assert all(uuid.startswith(batch.id) for uuid in rung)
    nodes = {task["worker"] for task in rung.values()}
    assert {node.partition("@")[0] for node in nodes} <= {"one", "two"}
    for node in nodes:
        assert [queue["name"] for queue in workers[node]["active_queues"]] == ["gpu"]


def test_a_busy_worker_leaves_the_next_message_in_the_queue(shared_yard: Yard, single: str) -> None:
    running = shared_yard.submit(marked("busy", 300, "latency_ms=150"), pool=single)
    running.stored(1)
    waiting = shared_yard.submit(marked("next", 3), pool=single)

    until(lambda: shared_yard.redis.llen(single) == 1, "the message lies in the queue")
    assert running.now().status == "in_progress"
    assert waiting.inner()["workers"] == 0
    assert waiting.inner()["waiting_reason"] == f"1 earlier batch of pool {single} first"

    waiting.ended()
    running.ended()
    assert_each_row_once(waiting, "next", 3)
    assert_each_row_once(running, "busy", 300)
    until(lambda: shared_yard.redis.llen(single) == 0, "the message is taken")


def test_two_workers_share_a_batch(shared_yard: Yard) -> None:
    """R-18."""
    batch = shared_yard.submit(marked("shared", 1500, "latency_ms=40"))
    batch.until(lambda found: found.gpuyard["workers"] == 2, "two workers are on it")  # type: ignore[attr-defined]
    batch.ended()
    assert_each_row_once(batch, "shared", 1500)
    granted = [event["data"] for event in shared_yard.events(batch.id) if event["type"] == "lease.granted"]
    shards = {who: sum(len(data["jobs"]) for data in granted if data["worker"] == who) for who in ("one", "two")}
    assert min(shards.values()) >= 2, shards


def test_a_later_batch_of_higher_priority_overtakes_at_the_end_of_a_shard(shared_yard: Yard, single: str) -> None:
    slow = shared_yard.submit(marked("low", 1200, "latency_ms=40"), pool=single, priority=0)
    slow.stored(1)
    urgent = shared_yard.submit(marked("high", 300, "latency_ms=5"), pool=single, priority=9)
    urgent.ended()

    assert slow.now().status == "in_progress"
    held = shared_yard.events(slow.id)
    assert [event for event in held if event["type"] in {"lease.expired", "lease.released"}] == []
    slow.ended()
    assert_each_row_once(urgent, "high", 300)
    assert_each_row_once(slow, "low", 1200)
