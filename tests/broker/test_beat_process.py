import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_celery import CeleryBrokerCluster
from redis import Redis

from config.beat import SWEEPS


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
