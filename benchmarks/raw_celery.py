"""Celery with nothing in it: what the latency of a batch is measured against. Started by `measures/latency.py`."""

import os
import time

from celery import Celery
from redis import Redis

from config.broker_url import for_redis

app = Celery("raw", broker=os.environ["GPUYARD_BROKER_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1)


@app.task
def started(key: str) -> None:
    """Say when it started."""
    _redis().rpush(key, repr(time.time()))


def _redis() -> Redis:
    return Redis.from_url(for_redis(os.environ["GPUYARD_BROKER_URL"]))
