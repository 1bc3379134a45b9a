"""The broker is a doorbell: what becomes of batches when it forgets, dies, freezes or lies."""

import base64
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from celery import Celery
from redis.exceptions import RedisError

from app.local.broker import listening
from tests.e2e.rows import assert_each_row_once, marked
from tests.e2e.submitted import Submitted
from tests.e2e.yard import Yard, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]

ROWS = 800
SLOWLY = "latency_ms=40"


@pytest.fixture(scope="module")
def yard(breakable_yard: Yard) -> Iterator[Yard]:
    with breakable_yard.manned("one", "two") as yard:
        yield yard


def submit_in_time(yard: Yard, lines: bytes) -> Submitted:
    """Create a batch, which must take less than a second whatever the broker does."""
    uploaded = yard.sdk.files.create(file=("input.jsonl", lines), purpose="batch")
    began = time.monotonic()
    batch = yard.sdk.batches.create(input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h")
    assert time.monotonic() - began < 1
    return Submitted(yard.sdk, yard.http, batch.id)


def run_through(yard: Yard, prefix: str) -> Submitted:
    """A batch of which some rows are stored and most are not."""
    yard.runtime.reset()
    batch = yard.submit(marked(prefix, ROWS, SLOWLY))
    batch.stored(50)
    return batch


def assert_right(yard: Yard, batch: Submitted, prefix: str) -> None:
    batch.ended()
    assert_each_row_once(batch, prefix, ROWS)
    assert yard.runtime.stats()["requests"] == ROWS


def test_a_broker_that_forgets_everything_again_and_again(yard: Yard) -> None:
    batch = run_through(yard, "flushed")
    for stored in (100, 300, 600):
        batch.stored(stored)
        yard.redis.flushall()
    assert_right(yard, batch, "flushed")


def test_a_broker_that_is_killed_and_starts_again(yard: Yard) -> None:
    batch = run_through(yard, "killed")
    yard.kill("broker")
    assert_right(yard, batch, "killed")
    until(lambda: answers(yard), "the broker is back")
    assert all(worker.alive for worker in yard.workers.values())


@pytest.mark.parametrize(
    ("setting", "bad", "good"), [("min-replicas-to-write", 1, 0), ("maxmemory", 1, "64mb")], ids=["replicas", "memory"]
)
def test_a_broker_that_takes_no_writes_is_named_and_ends_no_worker(
    yard: Yard, setting: str, bad: int, good: str | int
) -> None:
    batch = run_through(yard, "full")
    yard.redis.config_set(setting, bad)
    try:
        until(lambda: "broker" in yard.http.get("/readyz").json()["degraded"], "the API says so")
        during = yard.submit(marked("during", 20))
        batch.ended()
        during.ended()
        assert_each_row_once(during, "during", 20)
    finally:
        yard.redis.config_set(setting, good)
    assert_each_row_once(batch, "full", ROWS)
    assert all(worker.alive for worker in yard.workers.values())
    after = yard.submit(marked("writes", 20))
    after.ended()
    assert_each_row_once(after, "writes", 20)
    until(lambda: yard.http.get("/readyz").json()["degraded"] == {}, "the API says that it is over")


@pytest.mark.long
def test_a_broker_that_goes_and_comes_five_times(yard: Yard) -> None:
    batch = run_through(yard, "bounced")
    for stored in (60, 120, 180, 240, 300):
        batch.stored(stored)
        yard.redis.client_kill_filter(_type="normal", skipme=True)
    assert_right(yard, batch, "bounced")
    until(lambda: listening(yard.ready["broker_url"], "gpuyard-worker") == 2, "both workers consume again")


def answers(yard: Yard) -> bool:
    try:
        return bool(yard.redis.ping())
    except RedisError:
        return False


def _message(body: bytes) -> bytes:
    """A whole message for `run_batch`, as kombu writes it, around any body."""
    properties = {
        "correlation_id": "1",
        "delivery_info": {"exchange": "", "routing_key": "gpu"},
        "delivery_tag": "1",
        "body_encoding": "base64",
    }
    message = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "run_batch", "id": "1", "root_id": "1"},
        "properties": properties,
    }
    return json.dumps(message).encode()


def forge(yard: Yard, batch: Submitted, other: Submitted) -> int:
    """Send what anybody who reaches the broker could send; gives the number of messages."""
    forger = Celery("forger", broker=yard.ready["broker_url"], set_as_current=False)
    calls: list[tuple[str, list[object]]] = [
        *(("run_batch", [batch.id]) for _ in range(20)),
        ("run_batch", ["batch_00000000000000000000000000000000"]),
        ("run_batch", [other.id]),
        ("run_batch", ["x" * 2_000_000]),
        ("run_batch", [["a", "list"]]),
        ("run_batch", []),
        ("run_batch", [batch.id, "and more"]),
        ("os.system", ["true"]),
    ]
    try:
        for task, arguments in calls:
            forger.send_task(task, args=arguments, queue="gpu", ignore_result=True)
        forger.send_task("sweep", args=["no-such-sweep"], queue="control", ignore_result=True)
        forger.send_task("run_control", args=["job_999999"], queue="control", ignore_result=True)
    finally:
        forger.close()
    deep = b"[" * 100_000
    envelope = {"body": "!", "headers": {}, "properties": {}}
    raw = [b"no json", b"{}", b"[1, 2]", deep, json.dumps(envelope).encode(), _message(deep)]
    for message in raw:
        yard.redis.lpush("gpu", message)
        yard.redis.lpush("control", message)
    return len(calls) + len(raw)


def test_forged_doubled_foreign_and_huge_messages_do_no_harm(yard: Yard) -> None:
    yard.http.post("/v1/pools", json={"name": "elsewhere"}).raise_for_status()
    other = yard.submit(marked("foreign", 5), pool="elsewhere")
    batch = run_through(yard, "forged")
    pids = yard.ready["pids"]

    assert forge(yard, batch, other) > 20

    assert_right(yard, batch, "forged")
    until(lambda: yard.redis.llen("gpu") == 0, "all messages are taken", seconds=60)
    assert other.inner()["workers"] == 0
    assert yard.ready["pids"] == pids
    assert all(worker.alive for worker in yard.workers.values())
    after = yard.submit(marked("after", 5))
    after.ended()
    assert_each_row_once(after, "after", 5)
    other.cancel()


def test_a_frozen_broker_slows_no_call_and_stops_no_batch(yard: Yard) -> None:
    with yard.frozen("broker"):
        batches = [submit_in_time(yard, marked(f"frozen{number}", 20)) for number in range(3)]
        for number, batch in enumerate(batches):
            batch.ended()
            assert_each_row_once(batch, f"frozen{number}", 20)
        last = submit_in_time(yard, marked("thawed", 20))
    last.ended()
    assert_each_row_once(last, "thawed", 20)


def test_a_dead_broker_slows_no_call_and_stops_no_batch(yard: Yard) -> None:
    up = yard.installation.process
    assert up is not None
    up.send_signal(signal.SIGSTOP)  # or it would start another
    try:
        os.kill(yard.pid("broker"), signal.SIGKILL)
        batches = [submit_in_time(yard, marked(f"dead{number}", 20)) for number in range(3)]
        for number, batch in enumerate(batches):
            batch.ended()
            assert_each_row_once(batch, f"dead{number}", 20)
    finally:
        up.send_signal(signal.SIGCONT)
    until(lambda: answers(yard), "the broker is back")
    assert all(worker.alive for worker in yard.workers.values())


def polls(log: str) -> bool:
    return log.count("polls.began") > log.count("polls.ended")


def test_a_batch_runs_by_polls_while_its_workers_broker_is_gone(yard: Yard) -> None:
    """Longer than the batch: heartbeats would find it, too, but each worker says that it polls."""
    up = yard.installation.process
    assert up is not None
    for name, worker in yard.workers.items():  # the test before may have taken the broker away, too
        until(lambda: not polls(worker.log.read_text()), f"{name} hears of work by its broker")  # noqa: B023 - now
    before = {name: worker.log.read_text() for name, worker in yard.workers.items()}
    up.send_signal(signal.SIGSTOP)  # or it would start another
    try:
        os.kill(yard.pid("broker"), signal.SIGKILL)
        for name, worker in yard.workers.items():
            times = before[name].count("polls.began") + 1
            until(lambda: worker.log.read_text().count("polls.began") >= times, f"{name} polls")  # noqa: B023 - now
        began = time.monotonic()
        batch = submit_in_time(yard, marked("polled", ROWS, SLOWLY))
        batch.until(lambda found: found.in_progress_at, "it is validated")
        batch.stored(1)
        batch.ended(seconds=90)
        assert_each_row_once(batch, "polled", ROWS)
        assert time.monotonic() - began < 60
    finally:
        up.send_signal(signal.SIGCONT)
    until(lambda: answers(yard), "the broker is back")
    for name, worker in yard.workers.items():
        times = before[name].count("polls.ended") + 1
        until(lambda: worker.log.read_text().count("polls.ended") >= times, f"{name} has stopped polling")  # noqa: B023
    after = yard.submit(marked("rung", 20))
    after.ended()
    assert_each_row_once(after, "rung", 20)
