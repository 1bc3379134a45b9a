"""Facts of Celery that the design stands on, held by the product's own configuration."""

import base64
import json
import pickle
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kombu.exceptions import OperationalError
from pytest_celery import CeleryTestSetup
from redis import Redis

from config.queues import DEAD
from tests.process_nodes import WorkerContainer

Until = Callable[..., None]
Notes = Callable[[], list[str]]


def send(setup: CeleryTestSetup, task: str, *args: object, queue: str = "gpu") -> None:
    setup.app.send_task(task, args=args, queue=queue, ignore_result=True)


def test_a_busy_worker_leaves_the_next_message_in_the_queue(
    celery_setup: CeleryTestSetup, redis: Redis, tmp_path: Path, until: Until, notes: Notes
) -> None:
    send(celery_setup, "hold", str(tmp_path), "first")
    until(lambda: notes() == ["started-first"])
    for name in ("second", "third"):
        send(celery_setup, "hold", str(tmp_path), name)

    # A worker that held one back would have taken it within a poll; its answer to a ping comes after that.
    assert celery_setup.app.control.ping(destination=["one@local"], timeout=5)
    assert redis.llen("gpu") == 2
    assert redis.hlen("unacked") == 0

    (tmp_path / "release").touch()
    until(lambda: "ended-third" in notes())


def test_the_second_of_two_tasks_starts_as_the_first_ends(
    celery_setup: CeleryTestSetup, tmp_path: Path, until: Until, notes: Notes
) -> None:
    for name in ("first", "second"):
        send(celery_setup, "hold", str(tmp_path), name)
    until(notes)
    (tmp_path / "release").touch()
    until(lambda: "ended-second" in notes())

    moments = dict(line.split() for line in (tmp_path / "notes").read_text().splitlines())
    assert float(moments["started-second"]) - float(moments["ended-first"]) < 0.5


def test_a_worker_without_a_queue_takes_nothing_from_anybody(
    celery_setup: CeleryTestSetup, redis: Redis, tmp_path: Path, notes: Notes, until: Until
) -> None:
    url = celery_setup.broker.config()["url"]
    stray = WorkerContainer("stray", broker_url=url, folder=tmp_path, queues=None)
    stray.start()
    try:
        queues = celery_setup.app.control.inspect(destination=["stray@local"], timeout=5).active_queues()
        assert [queue["name"] for queue in queues["stray@local"]] == [DEAD]
        send(celery_setup, "note", str(tmp_path), "control-work", queue="control")
        send(celery_setup, "note", str(tmp_path), "stray-work", queue=DEAD)
        until(lambda: notes() == ["stray-work"])
        assert redis.llen("control") == 1
    finally:
        stray.teardown()


def test_a_task_that_nobody_routed_reaches_no_worker(celery_setup: CeleryTestSetup, redis: Redis) -> None:
    celery_setup.app.send_task("note", args=("x", "y"), ignore_result=True)

    assert redis.llen(DEAD) == 1


def forged(body: bytes, content_type: str, task: str = "note") -> bytes:
    """A message as anybody can write it into the list."""
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": content_type,
            "headers": {"lang": "py", "task": task, "id": str(uuid.uuid4()), "argsrepr": "x" * 1000},
            "properties": {
                "body_encoding": "base64",
                "delivery_info": {"exchange": "", "routing_key": "gpu"},
                "delivery_tag": str(uuid.uuid4()),
                "priority": 0,
            },
        }
    ).encode()


FORGED = {
    "unknown-task": forged(b"[[], {}, {}]", "application/json", task="no_such_task"),
    "pickle": forged(pickle.dumps((("x",), {}, {})), "application/x-python-serialize"),
    "20-MB": forged(b'[["' + b"x" * 20_000_000 + b'", "y"], {}, {}]', "application/json"),
    "no-JSON": forged(b"{not json", "application/json"),
    "wrong-arguments": forged(b'[[1, 2, 3, 4], {"a": 1}, {}]', "application/json"),
    "no-body": forged(b"[]", "application/json"),
    "no-message": b"ring ring",
}


def test_a_forged_message_does_no_harm(
    celery_setup: CeleryTestSetup, redis: Redis, tmp_path: Path, until: Until, notes: Notes
) -> None:
    for name, message in FORGED.items():
        redis.lpush("gpu", message)
        send(celery_setup, "note", str(tmp_path), name)
        until(lambda name=name: name in notes(), seconds=30)

    assert notes() == list(FORGED)
    assert celery_setup.worker.container.status == "running"
    assert len(celery_setup.worker.logs()) < 100_000


def test_a_flushed_broker_costs_messages_and_nothing_else(
    celery_setup: CeleryTestSetup, redis: Redis, tmp_path: Path, until: Until, notes: Notes
) -> None:
    send(celery_setup, "hold", str(tmp_path), "first")
    until(notes)
    redis.flushall()
    (tmp_path / "release").touch()
    until(lambda: "ended-first" in notes())
    send(celery_setup, "note", str(tmp_path), "after")

    until(lambda: notes()[-1] == "after")


def test_a_worker_outlives_a_broker_that_was_killed(
    celery_setup: CeleryTestSetup, tmp_path: Path, until: Until, notes: Notes
) -> None:
    send(celery_setup, "note", str(tmp_path), "before")
    until(notes)
    celery_setup.broker.kill()
    celery_setup.broker.restart()
    send(celery_setup, "note", str(tmp_path), "after")

    until(lambda: notes() == ["before", "after"])
    assert celery_setup.worker.container.status == "running"


def test_publishing_to_a_frozen_broker_ends_with_an_error_in_bounded_time(celery_setup: CeleryTestSetup) -> None:
    send(celery_setup, "note", "warm", "up", queue="nobody")
    celery_setup.broker.kill("SIGSTOP")
    try:
        began = time.monotonic()
        with pytest.raises(OperationalError):
            send(celery_setup, "note", "x", "y", queue="nobody")
        assert time.monotonic() - began < 15
    finally:
        celery_setup.broker.kill("SIGCONT")


def test_a_killed_worker_comes_back_by_the_plain_command(
    celery_setup: CeleryTestSetup, tmp_path: Path, until: Until, notes: Notes
) -> None:
    send(celery_setup, "node", str(tmp_path))
    until(lambda: len(notes()) == 1)
    celery_setup.worker.kill(signal.SIGKILL)
    send(celery_setup, "node", str(tmp_path))
    celery_setup.worker.restart()

    until(lambda: len(notes()) == 2)
    assert len(set(notes())) == 2
