"""The public API in a thread, on a real socket, saying what a test tells it to: for what a real one does rarely."""

import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.serving import Serving

PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Says:
    """An answer. `declared` bytes are promised, however many come: a connection that breaks."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    declared: int | None = None

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class FakePublicApi(Serving):
    """`api.says("GET /v1/batches/b", …)` queues answers of a route; the last one is given again and again."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._answers: dict[str, deque[Says]] = defaultdict(deque)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.daemon_threads = False
        server.api = self  # type: ignore[attr-defined]
        super().__init__(server)

    def says(self, route: str, *answers: Says) -> None:
        self._answers[route].extend(answers)

    def answer(self, call: str) -> Says:
        self.calls.append(call)
        route, _, _ = call.partition("?")
        found = self._answers[route]
        if not found:
            return Says({"error": {"message": f"no {route}", "code": "unknown_url"}}, 404)
        return found.popleft() if len(found) > 1 else found[0]


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        left = int(self.headers.get("content-length", 0))
        while left:
            left -= len(self.rfile.read(min(left, PIECE_BYTES)))
        says: Says = self.server.api.answer(f"{self.command} {self.path}")  # type: ignore[attr-defined]
        self.send_response_only(says.status)
        headers = {"date": self.date_time_string(), "content-length": str(says.declared or len(says.content))}
        for name, value in (headers | says.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(says.content)

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def batch(status: str = "completed", *, total: int = 3, completed: int | None = None, **more: Any) -> dict[str, Any]:
    """A batch object."""
    done = total if completed is None else completed
    return {
        "id": "batch_b",
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "status": status,
        "created_at": 1,
        "completion_window": "24h",
        "input_file_id": "file-1",
        "request_counts": {"total": total, "completed": done, "failed": 0},
        **more,
    }
