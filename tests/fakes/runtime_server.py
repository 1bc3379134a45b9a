"""A mock of an OpenAI-compatible runtime, for tests that need a real server: `python tests/fakes/runtime_server.py`.

It answers in one process and thread, needs nothing but the standard library and does some thousand rows a second.
A `[[mark]]` in a body comes back in the answer's text, so that every answer can be checked against its row.
`GET /stats` counts what it saw, `GET /marks` how often each mark came, `POST /reset` starts the counts again.

The body's `user` field can ask one row for something special (see `Orders`), which is how a test meets each case of
a bad runtime without a server of its own: `"user": "status=503;times=2;header=Retry-After: 1"`.
"""

import argparse
import asyncio
import contextlib
import gzip
import hashlib
import json
import os
import random
import re
import signal
import ssl
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CERTIFICATE = Path(__file__).parent / "tls" / "cert.pem"
MARK = re.compile(rb"\[\[[\x21-\x7e]*?\]\]")
GENERATE = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass
class Orders:
    """What the `user` field of a row asks for: `key=value` pairs, separated by `;`."""

    status: int = 200
    times: int = 10**9  # how many tries of this mark get the status, before it goes well
    header: str = ""
    raw: str = ""  # this very body (Python escapes) instead of an answer
    type: str = "application/json"
    latency_ms: float | None = None
    hang: int = 0  # 1: never answer
    die: int = 0  # 1: the whole server ends
    cut: int = 0  # 1: close without an answer, 2: close in mid-body
    then_close: int = 0  # 1: announce keep-alive and close after the answer
    chunked: int = 0
    trickle_ms: float = 0  # one byte at a time
    gzip: int = 0  # 1: the body is compressed

    @classmethod
    def of(cls, body: bytes, otherwise: str = "") -> "Orders":
        """Read the orders of a request body; any other `user` field is just a user. Without one, `otherwise` holds."""
        if b'"user"' not in body and not otherwise:
            return cls()
        try:
            return cls.read(str(json.loads(body).get("user", otherwise)))
        except (ValueError, AttributeError):
            return cls()

    @classmethod
    def read(cls, text: str) -> "Orders":
        orders = cls()
        for part in text.split(";"):
            key, equals, value = part.partition("=")
            if equals and hasattr(orders, key):
                kind = type(getattr(cls, key)) if getattr(cls, key) is not None else float
                setattr(orders, key, kind(value))
        return orders


@dataclass
class Stats:
    requests: int = 0
    completed: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    refused: int = 0  # with 503, for --max-queued
    aborted: int = 0  # the client closed while a row was in work
    connections: int = 0
    marks: Counter[str] = field(default_factory=Counter)  # in /stats: how many, and how many came more than once
    asked: Counter[str] = field(default_factory=Counter)  # how often each path was asked for
    headers: dict[str, str] = field(default_factory=dict)  # of the last row
    body: str = ""  # of the last row, its beginning
    body_sha256: str = ""  # of all of it

    def public(self) -> dict[str, Any]:
        repeated = sum(1 for times in self.marks.values() if times > 1)
        return self.__dict__ | {"marks": len(self.marks), "repeated_marks": repeated}


class Server:
    """The rules and the counts; a `Connection` each client."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.models: list[str] = options.models.split(",")
        self.slots = asyncio.Semaphore(options.slots)
        self.stats = Stats()
        self.gateway = ""
        """Orders for what stands before the engine: it answers by itself, or passes rows on and compresses answers."""

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> "Answer":
        self.stats.asked[path] += 1
        key = self.options.api_key
        if key and path.startswith("/v1/") and headers.get("authorization") != f"Bearer {key}":
            return Answer.of({"error": "Unauthorized"}, status=401)
        if path in GENERATE and method == "POST":
            orders = Orders.read(self.gateway)
            if orders.status != 200 or orders.raw:
                return Answer(orders.status, b"").obey(orders)
            return await self.row(path, headers, body)
        if path == "/gateway":
            self.gateway = body.decode()
            return Answer.of({})
        if path == "/stats":
            return Answer.of(self.stats.public())
        if path == "/marks":
            return Answer.of(dict(self.stats.marks))
        if path == "/reset":
            # The same object: rows in flight count down what they counted up.
            vars(self.stats).update(vars(Stats(in_flight=self.stats.in_flight)))
            return Answer.of({})
        if path == "/openapi.json" and self.stats.asked[path] <= self.options.late_pages:
            await asyncio.Event().wait()
        return self.facts(path)

    def facts(self, path: str) -> "Answer":
        """What a prober asks. Shapes of vLLM 0.32 and of Ollama 0.13."""
        ollama = self.options.kind == "ollama"
        if path == "/health" and not ollama:
            return Answer(200, b"")
        if path == "/v1/models":
            owner = "library" if ollama else "vllm"
            names = [self.ollama_id(name) for name in self.models] if ollama else self.models
            return Answer.of(
                {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner} for name in names]}
            )
        if path == "/metrics" and self.options.gauges:
            running = min(self.stats.in_flight, self.options.slots)
            gauges = {"running": running, "waiting": self.stats.in_flight - running}
            lines = [f'vllm:num_requests_{name}{{engine="0"}} {value}.0' for name, value in gauges.items()]
            return Answer(200, "\n".join(lines).encode(), type="text/plain")
        if path == "/version" and not ollama:
            return Answer.of({"version": "0.32.0"})
        if path == "/openapi.json" and not ollama:
            return Answer.of({"openapi": "3.1.0", "paths": {name: {"post": {}} for name in GENERATE}})
        if path == "/api/version" and ollama:
            return Answer.of({"version": "0.13.3"})
        if path == "/api/tags" and ollama:
            models = [{"name": self.ollama_id(name), "model": self.ollama_id(name)} for name in self.models]
            return Answer.of({"models": models})
        return Answer.of({"detail": "Not Found"}, status=404)

    @staticmethod
    def ollama_id(name: str) -> str:
        return name if ":" in name else f"{name}:latest"

    async def row(self, path: str, headers: dict[str, str], body: bytes) -> "Answer":
        stats, options = self.stats, self.options
        stats.requests += 1
        number = stats.requests
        found = MARK.search(body)
        mark = found.group().decode() if found else ""
        if mark:
            stats.marks[mark] += 1
        orders = Orders.of(body, self.gateway or options.orders)
        stats.headers, stats.body = headers, body.decode("utf-8", "replace")[:2000]
        stats.body_sha256 = hashlib.sha256(body).hexdigest()
        if options.max_queued is not None and stats.in_flight >= options.slots + options.max_queued:
            stats.refused += 1
            return Answer.error(503, "The engine is currently busy and cannot accept new requests.")
        stats.in_flight += 1
        stats.max_in_flight = max(stats.max_in_flight, stats.in_flight)
        try:
            async with self.slots:
                await self.work(number, orders)
        except asyncio.CancelledError:
            stats.aborted += 1
            raise
        finally:
            stats.in_flight -= 1
        if options.fail_every and number % options.fail_every == 0:
            return Answer.error(options.fail_code, f"row {number} is told to fail")
        if (orders.status != 200 or orders.cut) and stats.marks[mark] <= orders.times:
            return Answer.error(orders.status, "told to fail").obey(orders)
        stats.completed += 1
        return self.completion(path, number, mark, body).obey(orders, good=True)

    async def work(self, number: int, orders: Orders) -> None:
        options = self.options
        if orders.die:
            os._exit(1)
        if orders.hang or (options.hang_every and number % options.hang_every == 0):
            await asyncio.Event().wait()
        latency = options.latency_ms if orders.latency_ms is None else orders.latency_ms
        if options.spread:
            latency *= random.uniform(0.5, 1.5)
        if options.slow_every and number % options.slow_every == 0:
            latency = options.slow_ms
        if latency:
            await asyncio.sleep(latency / 1000)

    def completion(self, path: str, number: int, mark: str, body: bytes) -> "Answer":
        try:
            request = json.loads(body)
            model = request["model"]
        except (ValueError, KeyError, TypeError):
            return Answer.error(400, "malformed request")
        known = self.models if self.options.kind == "vllm" else [self.ollama_id(name) for name in self.models]
        if (model if self.options.kind == "vllm" else self.ollama_id(str(model))) not in known:
            return Answer.error(404, f"The model `{model}` does not exist.")
        text = f"answer {mark}" if mark else "answer"
        answer: dict[str, Any] = {"id": f"row-{mark.strip('[]') or number}", "model": model}
        n = request.get("n") or 1
        tokens = max(1, len(body) // 4)
        usage = {"prompt_tokens": tokens, "completion_tokens": 3, "total_tokens": tokens + 3}
        if path == "/v1/embeddings":
            inputs = request.get("input")
            is_tokens = isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], int)
            count = len(inputs) if isinstance(inputs, list) and not is_tokens else 1
            vectors = [{"object": "embedding", "index": i, "embedding": [0.25, 0.5]} for i in range(count)]
            answer |= {"object": "list", "data": vectors, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        elif path == "/v1/responses":
            part = {"type": "output_text", "text": text, "annotations": []}
            answer |= {"object": "response", "status": "completed", "error": None}
            answer |= {"output": [{"type": "message", "role": "assistant", "content": [part]}]}
            answer |= {"usage": {"input_tokens": tokens, "output_tokens": 3, "total_tokens": tokens + 3}}
        elif path == "/v1/completions":
            answer |= {"object": "text_completion", "usage": usage}
            answer |= {"choices": [{"index": i, "text": text, "finish_reason": "stop"} for i in range(n)]}
        else:
            message = {"role": "assistant", "content": text}
            answer |= {"object": "chat.completion", "usage": usage}
            answer |= {"choices": [{"index": i, "message": message, "finish_reason": "stop"} for i in range(n)]}
        return Answer.of(answer)


@dataclass
class Answer:
    status: int
    body: bytes
    type: str = "application/json"
    extra: str = ""
    orders: Orders = field(default_factory=Orders)

    @classmethod
    def of(cls, content: Any, status: int = 200) -> "Answer":
        return cls(status, json.dumps(content).encode())

    @classmethod
    def error(cls, status: int, message: str) -> "Answer":
        return cls.of({"error": {"message": message, "type": "mock_error", "param": None, "code": status}}, status)

    def obey(self, orders: Orders, *, good: bool = False) -> "Answer":
        """Change the answer as ordered. A good answer after ordered refusals is a plain one."""
        if good and (orders.status != 200 or orders.cut):
            return self
        self.orders = orders
        self.type = orders.type
        if orders.raw:
            self.body = orders.raw.encode("latin-1").decode("unicode_escape").encode("latin-1")
        if orders.header:
            self.extra = f"{orders.header}\r\n"
        if orders.gzip:
            self.body = gzip.compress(self.body)
            self.extra += "content-encoding: gzip\r\n"
        return self

    def head(self) -> bytes:
        length = "transfer-encoding: chunked" if self.orders.chunked else f"content-length: {len(self.body)}"
        reason = REASONS.get(self.status, "Status")
        return f"HTTP/1.1 {self.status} {reason}\r\ncontent-type: {self.type}\r\n{self.extra}{length}\r\n\r\n".encode()


class Connection(asyncio.Protocol):
    """One client: requests one after another, each answered by a task that ends when the client goes away."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.stats.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self.task:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.next_request()

    def next_request(self) -> None:
        if self.task is not None:
            return
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self.buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        total = end + 4 + int(headers.get("content-length", 0))
        if len(self.buffer) < total:
            return
        body = bytes(self.buffer[end + 4 : total])
        del self.buffer[:total]
        method, path, _ = first.split(" ", 2)
        self.task = asyncio.get_running_loop().create_task(self.respond(method, path.partition("?")[0], headers, body))

    async def respond(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        answer = await self.server.answer(method, path, headers, body)
        await self.send(answer)
        self.task = None
        self.next_request()

    async def send(self, answer: Answer) -> None:
        orders = answer.orders
        if orders.cut == 1:
            self.transport.abort()
        elif orders.cut == 2:
            self.transport.write(answer.head() + answer.body[: len(answer.body) // 2])
            self.transport.close()
        elif orders.chunked:
            half = len(answer.body) // 2 or 1
            parts = [answer.body[:half], answer.body[half:]]
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
            self.transport.write(answer.head() + chunks + b"0\r\n\r\n")
        elif orders.trickle_ms:
            for byte in answer.head() + answer.body:
                self.transport.write(bytes([byte]))
                await asyncio.sleep(orders.trickle_ms / 1000)
        else:
            self.transport.write(answer.head() + answer.body)
        if orders.then_close:
            self.transport.close()


def options_parser(*, add_help: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="mock of an OpenAI-compatible runtime", add_help=add_help)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kind", choices=["vllm", "ollama"], default="vllm")
    parser.add_argument("--models", default="mock", help="ids, separated by commas")
    parser.add_argument("--orders", default="", help="what every row without a `user` asks for")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--slots", type=int, default=64, help="rows it works on at once; the others wait")
    parser.add_argument("--max-queued", type=int, help="rows that may wait; the others are refused with 503")
    parser.add_argument("--gauges", action="store_true", help="tell the load at /metrics as vLLM does")
    parser.add_argument("--late-pages", type=int, default=0, help="so often /openapi.json is not answered")
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--spread", action="store_true", help="latency from half to one and a half")
    parser.add_argument("--slow-every", type=int, default=0)
    parser.add_argument("--slow-ms", type=float, default=1000)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--fail-code", type=int, default=500)
    parser.add_argument("--hang-every", type=int, default=0)
    parser.add_argument("--tls", action="store_true", help="with the certificate in tests/fakes/tls, for 127.0.0.1")
    parser.add_argument("--ready-file", type=Path, help="written with the URL once it listens")
    return parser


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = Server(options)
    tls = None
    if options.tls:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))
    listener = await loop.create_server(lambda: Connection(server), "127.0.0.1", options.port, backlog=1024, ssl=tls)
    url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    if options.ready_file:
        draft = options.ready_file.with_suffix(".draft")
        draft.write_text(url)
        draft.replace(options.ready_file)
    print(url, flush=True)  # noqa: T201 - the address, for a person
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    os._exit(0)  # rows in flight are cut, as by a real engine that is told to stop


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options_parser().parse_args()))
