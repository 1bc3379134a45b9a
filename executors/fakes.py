"""A runtime that is none: for tests, rehearsals and demonstrations without a GPU. It needs no server.

Its URL says how it behaves, for example `fake:?latency_ms=50&slots=8&fail_every=100&fail_status=500`:

| key | means | default |
|---|---|---|
| `models` | ids it serves, separated by commas | `fake` |
| `slots` | rows it works on at once; the others wait | 64 |
| `latency_ms` | how long a row takes | 0 |
| `fail_every`, `fail_status` | every n-th row ends with this status | never, 500 |
| `hang_every` | every n-th row never ends | never |
| `dead` | 1: nothing answers | 0 |
"""

import itertools
import json
import re
import threading
import time
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from app.domain.rows import Blame, Reply, Row, RowError, RowErrorCode, Usage
from app.domain.runtimes import RuntimeFacts, ServedModel
from executors.base import BaseExecutor, ExecutorUnavailable
from executors.cancellation import CancelToken
from executors.settings import ExecutorSettings

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
_REFUSE_SECONDS = 0.5
_MARK = re.compile(rb"\[\[[\x21-\x7e]*?\]\]")
_NUMBERS = {
    "slots": 64,
    "latency_ms": 0,
    "fail_every": 0,
    "fail_status": 500,
    "hang_every": 0,
    "dead": 0,
}


class FakeExecutor(BaseExecutor):
    """Answers every row by itself: the first `[[mark]]` of a body comes back in the answer's text."""

    kind: ClassVar[str] = "fake"
    default_url: ClassVar[str | None] = "fake:"

    def __init__(self, settings: ExecutorSettings, url: str | None = None) -> None:
        super().__init__(settings, url)
        self._models, self._rule = _parse(self.url or "")
        self._slots = threading.BoundedSemaphore(self._rule["slots"])
        self._serial = itertools.count(1)
        self._closed = threading.Event()

    def probe(self) -> RuntimeFacts:
        """Say what the URL says."""
        dead = bool(self._rule["dead"])
        return RuntimeFacts(
            name=self.name,
            kind=self.kind,
            alive=not dead,
            reason="told to be dead" if dead else "",
            models=tuple(ServedModel(model) for model in self._models),
            endpoints=ENDPOINTS,
            slots=self._rule["slots"],
        )

    def execute(self, row: Row, *, timeout: float, cancelled: CancelToken) -> Reply:
        """Wait as long as the rules say and answer as they say."""
        cancelled.raise_if_cancelled()
        if self._closed.is_set():
            return _unavailable("the executor was closed")
        number = next(self._serial)
        deadline = time.monotonic() + timeout
        if self._rule["dead"]:
            cancelled.sleep(min(timeout, _REFUSE_SECONDS))
            return _unavailable("the fake runtime is told to be dead")
        while not self._slots.acquire(timeout=min(0.05, max(0.0, deadline - time.monotonic()))):
            cancelled.raise_if_cancelled()
            if time.monotonic() >= deadline:
                return _timed_out(timeout)
        try:
            left = deadline - time.monotonic()
            wanted = float("inf") if _is_nth(number, self._rule["hang_every"]) else self._rule["latency_ms"] / 1000
            cancelled.sleep(min(wanted, left))
            if wanted > left:
                return _timed_out(timeout)
        finally:
            self._slots.release()
        if row.model not in self._models:
            return _failed(404, f"The model `{row.model}` does not exist.")
        if _is_nth(number, self._rule["fail_every"]):
            return _failed(self._rule["fail_status"], f"row {number} is told to fail")
        return _answered(row, number)

    def close(self) -> None:
        """Answer no further row."""
        self._closed.set()


def _parse(url: str) -> tuple[tuple[str, ...], dict[str, int]]:
    models: tuple[str, ...] = ("fake",)
    rule = dict(_NUMBERS)
    for key, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if key == "models":
            models = tuple(value.split(","))
        elif key in rule and value.isascii() and value.isdigit():
            rule[key] = int(value)
        else:
            known = ", ".join(["models", *_NUMBERS])
            raise ExecutorUnavailable(f"fake runtime: {key}={value} is none of {known} with a number.")
    return models, rule


def _is_nth(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _timed_out(timeout: float) -> Reply:
    return Reply(error=RowError(RowErrorCode.REQUEST_TIMEOUT, f"the runtime gave no answer within {timeout:g} s"))


def _unavailable(message: str) -> Reply:
    return Reply(error=RowError(RowErrorCode.RUNTIME_UNAVAILABLE, message), blame=Blame.RUNTIME)


def _failed(status: int, message: str) -> Reply:
    error = {"message": message, "type": "fake_error", "param": None, "code": status}
    return Reply(status=status, body=json.dumps({"error": error}).encode(), request_id="fake")


def _answered(row: Row, number: int) -> Reply:
    found = _MARK.search(row.body)
    text = found.group().decode() if found else "fake"
    counts = {"prompt_tokens": len(row.body) // 4, "completion_tokens": 1, "total_tokens": len(row.body) // 4 + 1}
    content: dict[str, object]
    if row.endpoint == "/v1/embeddings":
        content = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.0, 1.0]}]}
    elif row.endpoint == "/v1/responses":
        part = {"type": "output_text", "text": text, "annotations": []}
        content = {
            "object": "response",
            "status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [part]}],
        }
        counts = {
            "input_tokens": counts["prompt_tokens"],
            "output_tokens": 1,
            "total_tokens": counts["total_tokens"],
        }
    elif row.endpoint == "/v1/completions":
        content = {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}]}
    else:
        message = {"role": "assistant", "content": text}
        content = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    body = {"id": f"fake-{number}", "model": row.model, **content, "usage": counts}
    usage = Usage(input_tokens=len(row.body) // 4, output_tokens=1, total_tokens=len(row.body) // 4 + 1)
    return Reply(status=200, body=json.dumps(body).encode(), request_id=f"fake-{number}", usage=usage)
