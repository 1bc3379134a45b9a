"""Rows to run, and how a test runs them."""

import itertools
import json
import time
from queue import SimpleQueue
from typing import Any

from app.domain.rows import Reply, Row
from executors.base import BaseExecutor, Ending
from executors.cancellation import CancelToken

_serial = itertools.count(1)


def chat_row(text: str = "hello", *, model: str = "mock", **fields: Any) -> Row:
    """Make a chat row. `user=` takes the mock's orders."""
    number = next(_serial)
    content = f"{text} [[row-{number}]]"
    body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
    return Row(number, f"row-{number}", "/v1/chat/completions", model, json.dumps(body).encode())


def row_of(endpoint: str, *, model: str = "mock", **fields: Any) -> Row:
    """Make a row of any endpoint."""
    number = next(_serial)
    return Row(number, f"row-{number}", endpoint, model, json.dumps({"model": model, **fields}).encode())


def run(executor: BaseExecutor, row: Row, *, timeout: float = 10.0, cancelled: CancelToken | None = None) -> Reply:
    """Run one row with a time-out that lets a failing test end."""
    return executor.execute(row, timeout=timeout, cancelled=cancelled or CancelToken())


def run_begun(
    executor: BaseExecutor, row: Row, *, timeout: float = 10.0, cancelled: CancelToken | None = None
) -> Reply:
    """Run one row as the worker does where an executor only begins rows. The probe leaves it a connection."""
    executor.probe()
    endings: SimpleQueue[Ending] = SimpleQueue()
    token = cancelled or CancelToken()
    if not executor.begin(row, timeout=timeout, cancelled=token, ended=endings.put):
        return executor.execute(row, timeout=timeout, cancelled=token)
    ending = endings.get(timeout=60)
    return ending if isinstance(ending, Reply) else ending()


def wait_until_alive(executor: BaseExecutor, *, seconds: float = 60) -> None:
    """Probe until the runtime lives: a model takes its time to load."""
    end = time.monotonic() + seconds
    while not (facts := executor.probe()).alive:
        assert time.monotonic() < end, facts.reason
