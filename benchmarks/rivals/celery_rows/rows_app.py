"""The Celery app of this rival: a task a row, as a first version of such a service has it."""

import os
import threading
from typing import Any

import requests
from celery import Celery

app = Celery("rows", broker=os.environ["ROWS_REDIS"], backend=os.environ["ROWS_REDIS"])
app.conf.update(broker_connection_retry_on_startup=True, result_expires=600, worker_hijack_root_logger=False)
_of_thread = threading.local()


@app.task
def complete(url: str, row: dict[str, Any]) -> dict[str, Any]:
    """Send one row, with a kept connection a thread."""
    if not hasattr(_of_thread, "session"):
        _of_thread.session = requests.Session()
    answer = _of_thread.session.post(url + row["url"], json=row["body"], timeout=300)
    answer.raise_for_status()
    return {"custom_id": row["custom_id"], "body": answer.json()}


@app.task
def cpu_seconds() -> float:
    """Tell what the worker has used so far."""
    return sum(os.times()[:2])
