"""P8: from `POST /v1/batches` to the first row at the runtime, beside Celery's own way from publish to start."""

import time

from celery import Celery

from benchmarks.engine_process import Engine, Shape, engine
from benchmarks.inputs import input_file
from benchmarks.product import CELERY_COMMAND, POLL_SECONDS, Product
from benchmarks.targets import Finding
from tests.e2e.yard import until

AT_ONCE = Shape(64, 2)
QUEUE = "bench-raw"
TASK = "benchmarks.raw_celery.started"


def latency(product: Product, batches: int) -> list[Finding]:
    """Measure both ways one by one, idle in between, so that nothing queues."""
    ours = _batches(product, batches)
    raw = _tasks(product, batches)
    return [
        Finding(key, at(ours, part) / at(raw, part), (at(ours, part) * 1000, at(raw, part) * 1000))
        for key, part in (("P8.p50", 0.5), ("P8.p99", 0.99))
    ]


def at(values: list[float], part: float) -> float:
    """The value below which this part of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def _batches(product: Product, count: int) -> list[float]:
    file_id = product.upload(input_file(1))
    with engine(AT_ONCE) as running, product.gpu_worker("idle", running):
        # The first batch meets connections that are not open yet, on either side.
        return [_first_row(product, running, file_id) for _ in range(count + 1)][1:]


def _first_row(product: Product, running: Engine, file_id: str) -> float:
    running.reset()
    began = time.time()
    batch_id = product.create(file_id)
    product.until_ended(batch_id, [running], 1, seconds=60, every=POLL_SECONDS)
    time.sleep(POLL_SECONDS)  # the worker has said that it is free again
    first: float = running.stats()["first_at"]
    return first - began


def _tasks(product: Product, count: int) -> list[float]:
    worker = product.run(
        "raw-celery",
        *CELERY_COMMAND,
        "benchmarks.raw_celery",
        "worker",
        "-Q",
        QUEUE,
        "-l",
        "info",
        "-P",
        "threads",
        "-c",
        "2",
    )
    sender = Celery("sender", broker=product.ready["broker_url"])
    sender.conf.task_default_queue = QUEUE
    try:
        worker.until_it_says("ready.")
        return [_started(product, sender, number) for number in range(count + 1)][1:]
    finally:
        sender.close()
        worker.stop()


def _started(product: Product, sender: Celery, number: int) -> float:
    key = f"bench-started-{number}"
    began = time.time()
    sender.send_task(TASK, (key,), ignore_result=True)
    _, told = until(lambda: product.redis.blpop([key], timeout=5) or (), "a task starts")
    return float(told) - began
