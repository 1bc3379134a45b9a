import base64
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery
from celery.beat import Service
from celery.signals import before_task_publish
from pytest_celery import CeleryBrokerCluster
from redis import Redis

from app import celery_beat
from app.celery_beat import TerseScheduler
from config.beat import SWEEPS, schedule


def test_beat_by_its_plain_command_rings_every_sweep_and_leaves_no_file(
    celery_broker_cluster: CeleryBrokerCluster, redis: Redis, tmp_path: Path, until: Callable[..., None]
) -> None:
    environment = {
        **os.environ,
        "GPUYARD_BROKER_URL": celery_broker_cluster[0].config()["url"],
        "GPUYARD_SWEEP_SECONDS": "0.3",
        "GPUYARD_RETENTION_SWEEP_SECONDS": "0.5",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    empty = tmp_path / "cwd"
    empty.mkdir()
    with (tmp_path / "beat.log").open("wb") as log:
        beat = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "app", "beat"], cwd=empty, env=environment, stdout=log, stderr=log
        )
    try:
        until(lambda: redis.llen("control") >= 2 * len(SWEEPS))
    finally:
        beat.terminate()
        assert beat.wait(timeout=10) == 0

    messages = [json.loads(message) for message in redis.lrange("control", 0, -1)]
    assert {message["headers"]["task"] for message in messages} == {"sweep"}
    assert {message["headers"]["expires"] for message in messages} == {None}
    assert {json.loads(base64.b64decode(message["body"]))[0][0] for message in messages} == set(SWEEPS)
    assert list(empty.iterdir()) == []


def test_beat_that_is_told_to_end_in_the_middle_of_a_send_ends(celery_broker_cluster: CeleryBrokerCluster) -> None:
    """The SystemExit of the signal's handler is lost there, when the send fails for what the handler closes."""
    there = Celery("there", broker=celery_broker_cluster[0].config()["url"], set_as_current=False)
    there.conf.beat_schedule = schedule(sweep_seconds=0.01, retention_sweep_seconds=0.01)
    service = Service(there, max_interval=0.01, scheduler_cls=TerseScheduler, remote_control=False)

    def is_told(**_: object) -> None:
        service.sync()  # as Celery's handler does before it raises

    before_task_publish.connect(is_told)
    running = threading.Thread(target=service.start, daemon=True)
    try:
        running.start()
        running.join(10)
        assert not running.is_alive()
    finally:
        before_task_publish.disconnect(is_told)
        service.stop()


def test_a_clock_that_is_set_back_or_forward_changes_no_tick(
    celery_broker_cluster: CeleryBrokerCluster, redis: Redis, until: Callable[..., None]
) -> None:
    class Wall(Celery):
        """An app whose machine's clock is set in mid-run."""

        ahead = timedelta()

        def now(self) -> datetime:
            return super().now() + self.ahead

    there = Wall("there", broker=celery_broker_cluster[0].config()["url"], set_as_current=False)
    there.conf.beat_schedule = schedule(sweep_seconds=0.2, retention_sweep_seconds=600)
    service = Service(there, max_interval=0.05, scheduler_cls=TerseScheduler, remote_control=False)
    running = threading.Thread(target=service.start, daemon=True)
    try:
        running.start()
        for ahead in (timedelta(), timedelta(hours=-1), timedelta(days=1)):
            there.ahead = ahead
            redis.delete("control")
            until(lambda: redis.llen("control") >= 3 * (len(SWEEPS) - 1))
        sent = {
            json.loads(base64.b64decode(json.loads(message)["body"]))[0][0]
            for message in redis.lrange("control", 0, -1)
        }
        assert sent == set(SWEEPS) - {"retention"}, "a clock that is set forward makes nothing due"
    finally:
        service.stop()
        running.join(10)
        there.close()


def test_a_broker_that_is_away_is_one_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ten ticks every five seconds: with two traces each they filled a disk in days."""
    away = Celery("away", broker=f"redis+socket://{tmp_path}/no.sock", set_as_current=False)
    away.conf.update(
        task_publish_retry_policy={"max_retries": 0},
        beat_schedule=schedule(sweep_seconds=1, retention_sweep_seconds=1),
    )
    ticking = TerseScheduler(away)
    assert set(ticking.schedule) >= set(SWEEPS)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            for entry in ticking.schedule.values():
                ticking.apply_entry(entry)
        (line,) = caplog.records
        assert "ticks are not heard" in line.getMessage()
        assert line.exc_info is None
        monkeypatch.setattr(celery_beat, "COMPLAIN_SECONDS", 0.0)
        ticking.apply_entry(next(iter(ticking.schedule.values())))
    assert len(caplog.records) == 2
