"""A control plane in a thread, on a real socket: it keeps leases by the rules and misbehaves when a test says so.

`plane.next("claim", Lose())` decides about the next call of that route only; without a word every call is answered.
Routes: register, heartbeat, poll, claim, start-row, results (with or without ends), release, report-failure, progress,
model-progress, bye, content.
"""

import hashlib
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from app.domain.rowsets import RowSet
from app.schemas.handins import read_hand_in
from app.schemas.segments import FirstRows, HandInHeader
from tests.e2e.yard import until
from tests.fakes.plane_answers import Answer, Cut, Drip, Hang, Lose
from tests.fakes.serving import Serving

WAIT_SECONDS = 10.0


def refusal(status: int, code: str | None = None, message: str = "no") -> Answer:
    """OpenAI's error envelope."""
    return Answer(status, {"error": {"message": message, "type": "x", "param": None, "code": code}})


@dataclass(frozen=True)
class Call:
    """One call as it came in."""

    route: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """Its JSON, or a hand-in's header."""
        return json.loads(self.raw.partition(b"\n")[0] or b"null")


@dataclass
class Lease:
    """A lease as this side keeps it. `state`: held, stopping, reported, released, stale."""

    shard: dict[str, Any]
    state: str = "held"


class FakeControlPlane(Serving):
    """Holds one batch at a time. Everything a test may look at is a public attribute, guarded by `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.calls: list[Call] = []
        self.leases: dict[int, Lease] = {}
        self.rows_of: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.segments: dict[tuple[int, int], str] = {}
        self.claims: dict[str, dict[str, Any]] = {}
        self.shards: deque[dict[str, Any]] = deque()
        self.timing = {
            "renew_seconds": 0.2,
            "grace_seconds": 5.0,
            "toleration_seconds": 60.0,
            "self_stop_seconds": 50.0,
        }
        self.segment_seconds = 0.1
        self.next_segment_seconds: float | None = None
        self.drain = False
        self.reset: str | None = None
        self.look: int | None = None
        self.no: str | None = None
        self.hear: Callable[[FirstRows], bool] = lambda _word: False
        self.refuses: Callable[[Call], Answer | None] = lambda _call: None
        self.batch: dict[str, Any] = {}
        self.input = b""
        self.rows = 0
        self._script: dict[str, deque[Any]] = defaultdict(deque)
        server = _Server(("127.0.0.1", 0), _Handler)
        server.plane = self
        super().__init__(server)

    # --- a test's side

    @property
    def stored(self) -> dict[int, bytes]:
        """The rows stored of the batch given last, by number."""
        return self.rows_of[self.batch.get("id", "")]

    def next(self, route: str, *behaviours: Any) -> None:
        """Say what becomes of the next calls of `route`."""
        with self.changed:
            self._script[route].extend(behaviours)

    def give_batch(
        self,
        lines: list[bytes],
        *,
        shard_rows: int = 4,
        batch_id: str = "batch_1",
        endpoint: str = "/v1/chat/completions",
        canary_rows: int = 0,
        row_by_row: bool = False,
    ) -> None:
        """Have one batch to do; its shards are cautious with `row_by_row`."""
        with self.changed:
            self.input = b"".join(line + b"\n" for line in lines)
            self.rows = len(lines)
            self.batch = {
                "id": batch_id,
                "endpoint": endpoint,
                "input_path": "/workers/input/file-1",
                "priority": 0,
                "created_at": 1,
                "canary_rows": canary_rows,
            }
            start = 0
            for first in range(0, len(lines), shard_rows):
                part = lines[first : first + shard_rows]
                end = start + sum(len(line) + 1 for line in part)
                shard = {"batch": batch_id, "number": first // shard_rows, "first_row": first, "rows": len(part)}
                self.shards.append({**shard, "start": start, "end": end, "rejected": [], "row_by_row": row_by_row})
                start = end
            self.changed.notify_all()

    def wait(self, condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Wait until `condition` holds; it is looked at after each call."""
        with self.changed:
            found = self.changed.wait_for(condition, seconds)
        assert found, f"waited {seconds} s; calls: {[call.route for call in self.calls][-30:]}"
        return found

    def never(self, condition: Callable[[], Any], seconds: float = 0.5, *, after: Callable[[], Any]) -> None:
        """Wait until `after` holds, and then check that `condition` does not come to hold for a while.

        `after` shows that the worker knows why it should do nothing. It may look at the worker itself: an answer that
        was sent is not yet an answer that was read.
        """
        until(after, "the worker knows of the cause")
        with self.changed:
            assert not self.changed.wait_for(condition, seconds), [call.route for call in self.calls][-30:]

    def called(self, route: str) -> list[Call]:
        """The calls of one route so far."""
        with self.changed:
            return [call for call in self.calls if call.route == route]

    def states(self) -> dict[int, str]:
        """What became of each lease."""
        with self.changed:
            return {key: lease.state for key, lease in self.leases.items()}

    # --- the wire's side

    def take(self, call: Call) -> Any:
        """Note a call and say how it is to be treated."""
        with self.changed:
            self.calls.append(call)
            script = self._script[call.route]
            found = script.popleft() if script else self.refuses(call)
            self.changed.notify_all()
            return found

    def answer(self, call: Call) -> Any:
        """Do what the call asks."""
        with self.changed:
            try:
                return getattr(self, f"_{call.route.replace('-', '_')}")(call)
            finally:
                self.changed.notify_all()

    def _register(self, call: Call) -> Any:
        body = call.body
        return {
            "worker_id": "wrk_1",
            "name": body["name"],
            "pool": body["pool"],
            "timing": self.timing,
            "segment_seconds": self.segment_seconds,
            "work": bool(self.shards),
        }

    def _heartbeat(self, call: Call) -> Any:
        words = {"held": "renewed", "stopping": "stop"}
        leases = {key: words.get(self.leases[key].state, "stale") for key in call.body["leases"]}
        told = {"work": bool(self.shards), "drain": self.drain, "reset_backoff": self.reset, "look": self.look}
        return {"leases": leases, **told}

    def _poll(self, call: Call) -> Any:
        """Hold it until there is something that its cursor does not know; a bell rings once for the same shards."""
        body = call.body
        told = json.loads(body["cursor"] or "[]")

        def standing() -> list[str]:
            bell = [f"work {len(self.shards)}"] if self.shards and body["free"] else []
            return bell + (["drain"] if self.drain else [])

        self.changed.wait_for(lambda: set(standing()) - set(told), min(body["wait_seconds"], WAIT_SECONDS))
        found = [what for what in standing() if what not in told]
        messages = [{"kind": what.partition(" ")[0], "batch_id": self.batch.get("id")} for what in found]
        return {"cursor": json.dumps(standing()), "messages": messages}

    def _claim(self, call: Call) -> Any:
        body = call.body
        if body["request_id"] in self.claims:
            return self.claims[body["request_id"]]
        if body["started"] and body["batch_id"] != self.batch.get("id"):
            return {"no": "nothing", "work": bool(self.shards)}
        if self.no or not self.shards:
            return {"no": self.no or "nothing"}
        if any(lease.state in {"held", "stopping"} and lease.shard["row_by_row"] for lease in self.leases.values()):
            return {"no": "yield"}
        grants, rows = [], 0
        while self.shards and rows < body["want_rows"]:
            shard = self.shards.popleft()
            lease_id = len(self.leases) + 1
            self.leases[lease_id] = Lease(shard)
            span = range(shard["first_row"], shard["first_row"] + shard["rows"])
            done = str(RowSet.of(row for row in self.stored if row in span))
            grants.append({"lease_id": lease_id, "job_id": shard["number"] + 1, "done": done, **shard})
            rows += body["want_rows"] if shard["row_by_row"] else shard["rows"]  # such a one comes alone
        self.claims[body["request_id"]] = {"batch": self.batch, "grants": grants}
        return self.claims[body["request_id"]]

    def _start_row(self, call: Call) -> Any:
        verdicts = {"held": "start", "stopping": "stop"}
        return {"verdict": verdicts.get(self.leases[call.body["lease_id"]].state, "stale")}

    def _results(self, call: Call) -> Any:
        head, _, content = call.raw.partition(b"\n")
        header = HandInHeader.model_validate_json(head)
        parts: dict[int, str] = {}
        for part in header.parts:
            lines, content = content[: part.length], content[part.length :]
            parts[part.lease_id] = self._store(header.batch_id, part.lease_id, part.seq, part.rows, lines)
        assert not content
        ends = {end.lease_id: self._end(end.lease_id) for end in header.ends}
        goes_on = header.first_rows is not None and self.hear(header.first_rows)
        stop = [key for key in (self.leases if header.first_rows else parts) if self.leases[key].state == "stopping"]
        verdicts = {"parts": parts, "ends": ends, "stop": stop, "goes_on": goes_on, "work": bool(self.shards)}
        return verdicts | {"next_segment_seconds": self.next_segment_seconds}

    def _store(self, batch_id: str, lease_id: int, seq: int, rows: str, lines: bytes) -> str:
        digest = hashlib.sha256(lines).hexdigest()
        known = self.segments.get((lease_id, seq))
        if known is not None:
            return "duplicate" if known == digest else "conflict"
        if self.leases[lease_id].state not in {"held", "stopping"}:
            return "stale"
        found = {line.row: lines[line.start : line.end - 1] for line in read_hand_in(batch_id, [lines])}
        stored = self.rows_of[batch_id]
        assert str(RowSet.of(found)) == rows
        assert not found.keys() & stored.keys(), "a row was handed in twice"
        self.segments[lease_id, seq] = digest
        stored |= found
        return "stored"

    def _end(self, lease_id: int) -> str:
        lease = self.leases[lease_id]
        if lease.state == "reported":
            return "ended"
        if lease.state not in {"held", "stopping"}:
            return "stale"
        first, rows = lease.shard["first_row"], lease.shard["rows"]
        stored = self.rows_of[lease.shard.get("batch", "")]
        if not all(row in stored for row in range(first, first + rows)):
            return "incomplete"
        lease.state = "reported"
        return "ended"

    def _release(self, call: Call) -> Any:
        answer = {}
        for lease_id in call.body["leases"]:
            lease = self.leases[lease_id]
            live = lease.state in {"held", "stopping"}
            if live:
                if lease.state == "held":
                    self.shards.append(lease.shard)
                lease.state = "released"
            answer[lease_id] = "ended" if live else "stale"
        return {"leases": answer}

    def _report_failure(self, call: Call) -> Any:
        lease_id = call.body["lease_id"]
        self.leases[lease_id].state = "failed"
        return {"leases": {lease_id: "ended"}}

    def _progress(self, _call: Call) -> Any:
        return None

    _model_progress = _bye = _progress


def _route(path: str) -> str:
    last = path.partition("?")[0].rsplit("/", 1)[-1]
    if "/input/" in path:
        return "content"
    return "results" if last == "upload-results" else last


class _Server(ThreadingHTTPServer):
    plane: FakeControlPlane
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is nobody's mistake; anything else shows as a call without an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *args: object) -> None:
        """Tests print what they need."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        call = Call(_route(self.path), {key.lower(): value for key, value in self.headers.items()}, raw)
        told = self.server.plane.take(call)
        if isinstance(told, Answer):
            self._send(told)
            return
        if isinstance(told, Drip):
            self._drip(told.until)
            return
        if isinstance(told, Hang):
            told.until.wait(WAIT_SECONDS)
        if call.route == "content":
            self._content(call, told.count if isinstance(told, Cut) else None)
            return
        body = self.server.plane.answer(call)
        if isinstance(told, Lose):
            self.close_connection = True
            return
        self._send(Answer(200 if body is not None else 204, body))

    def _send(self, answer: Answer) -> None:
        data = b"" if answer.body is None else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _drip(self, until: threading.Event) -> None:
        self.close_connection = True
        end = time.monotonic() + WAIT_SECONDS
        self.send_response(200)
        self.send_header("content-length", "1000000")
        self.end_headers()
        with suppress(OSError):  # whoever asked has enough of it
            while not until.wait(0.1) and time.monotonic() < end:
                self.wfile.write(b" ")

    def _content(self, call: Call, cut: int | None) -> None:
        first, _, last = call.headers["range"].removeprefix("bytes=").partition("-")
        data = self.server.plane.input[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if cut is None else data[:cut])
        self.close_connection = cut is not None


def rows(count: int) -> Iterator[bytes]:
    """Lines of an input file: row `n` carries the mark `[[n]]`."""
    for number in range(count):
        body = {"model": "fake", "messages": [{"role": "user", "content": f"say [[{number}]]"}]}
        line = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        yield json.dumps(line).encode()
