"""The hostile org: what it makes for itself before it begins, and how it does everything at the same time."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.tenants.wire import Answer, Connection, Wire

MIB = 1024 * 1024
MODELS = 6_000
"""That a batch names; a worker of the org serves most of them."""
POOL = "hostile-gpu"


@dataclass(frozen=True)
class Plan:
    """Where to call, with which keys, whom to name, and which of the attacks to make."""

    url: str
    seconds: float
    admin: str
    worker: str
    honest_worker: str
    honest_name: str
    attacks: list[str]


class Attack:
    """One org's. `seen` counts by what was done and how it was answered."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen: dict[str, Counter[str]] = defaultdict(Counter)
        self.admin = Wire(plan.url, plan.admin)
        self.worker = Wire(plan.url, plan.worker)
        self.nobody = Wire(plan.url)
        self.number = 0
        self._held: list[Connection] = []

    async def run(self, attacks: "Mapping[str, tuple[Act, float]]") -> None:
        """Prepare, then do everything until the time is over, each with its pause after each round."""
        await self._prepare()
        end = time.monotonic() + self.plan.seconds
        await asyncio.gather(*(self._again(name, act, pause, end) for name, (act, pause) in attacks.items()))
        for _, writer in self._held:
            writer.close()

    async def _again(self, name: str, act: "Act", pause: float, end: float) -> None:
        while time.monotonic() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + end - time.monotonic() + 1):
                    async for label in act(self):
                        self.seen[name][label] += 1
                    await asyncio.sleep(min(pause, end - time.monotonic()))

    async def _prepare(self) -> None:
        """A pool and a worker of its own, a file, a batch that waits, and a host that never answers."""
        silent = await asyncio.start_server(_say_nothing, "127.0.0.1", 0)
        self.silent_url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/"
        await self._made("/v1/pools", {"name": POOL, "shared": False})
        models = [f"m-{number:04}" for number in range(MODELS)]
        runtimes = [
            {"name": f"r{first}", "kind": "vllm", "alive": True, "endpoints": ["/v1/chat/completions"]}
            | {"models": models[first : first + 2000]}
            for first in (0, 2000)
        ]
        self.hello = {"name": "hostile-1", "install_id": "i", "boot_id": "b", "pool": POOL, "transport": "http"}
        self.hello |= {"phase": "ready", "slots": 8, "runtimes": runtimes}
        self.worker_id = await self._registered(self.hello)
        self.idle_id = await self._registered(self.hello | {"name": "hostile-2", "install_id": "i2", "runtimes": []})
        self.many_models = await self._file(_rows(models))
        self.file = await self._file(_rows(models[:1]) * 60_000)
        few = await self._file(_rows(models[:1]))
        self.batch = await self._made("/v1/batches", batch_of(few))
        self.few = few
        endpoint = {"name": "silent", "url": self.silent_url, "event_types": ["batch.completed"]}
        self.endpoint = await self._made("/v1/webhook_endpoints", endpoint)

    async def _registered(self, hello: dict[str, Any]) -> str:
        made = await self.worker.call("POST", "/workers/register", hello)
        assert made.status == 200, made
        return str(json.loads(made.body)["worker_id"])

    async def _made(self, path: str, body: object) -> str:
        made = await self.admin.call("POST", path, body)
        assert made.status == 200, (path, made)
        return str(json.loads(made.body).get("id"))

    async def upload(self, content: bytes) -> Answer:
        """Upload a file."""
        headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        return await self.admin.call("POST", "/v1/files", form(content), headers=headers)

    async def _file(self, content: bytes) -> str:
        made = await self.upload(content)
        assert made.status == 200, made
        return str(json.loads(made.body)["id"])

    def fresh(self) -> str:
        """A name that was not used before."""
        self.number += 1
        return f"hostile-{self.number}"

    def hold(self, connection: Connection) -> None:
        """Keep a connection open until the end."""
        self._held.append(connection)


Act = Callable[[Attack], AsyncIterator[str]]
BOUNDARY = "hostile"


def form(content: bytes) -> bytes:
    purpose = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    file = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    return f"{purpose}{file}".encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def _rows(models: Iterable[str]) -> bytes:
    asked = [{"model": model, "messages": [{"role": "user", "content": "x"}]} for model in models]
    url = "/v1/chat/completions"
    lines = [{"custom_id": f"r{n}", "method": "POST", "url": url, "body": body} for n, body in enumerate(asked)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def batch_of(file: str) -> dict[str, Any]:
    endpoint = "/v1/chat/completions"
    return {"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", "pool": POOL}


async def _say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.CancelledError):
        while await reader.read(MIB):
            pass
