"""What the replicas have in common: how a row is judged, and the states of the process.

Run by replica_server.py, whose folder is on the import path.
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Callable
from typing import Any, ClassVar

from runtime_server import Answer, Orders, Server

CONTEXT_TOKENS = 2048
CHARACTERS_A_TOKEN = 4
TOO_LONG = f"This model's maximum context length is {CONTEXT_TOKENS} tokens. However, you requested more."
Body = dict[str, Any]


def openai_error(status: int, message: str, kind: str, **more: Any) -> Answer:
    return Answer.of({"error": {"message": message, "type": kind, **more}}, status)


def plain_500() -> Answer:
    return Answer(500, b"Internal Server Error", type="text/plain; charset=utf-8")


def text_of(request: Body) -> str:
    return "".join(str(message.get("content")) for message in request.get("messages") or [])


def is_too_long(request: Body) -> bool:
    return len(text_of(request)) > CONTEXT_TOKENS * CHARACTERS_A_TOKEN


def is_long_text(inputs: Any) -> bool:
    return isinstance(inputs, str) and len(inputs) > CONTEXT_TOKENS * CHARACTERS_A_TOKEN


def schema_kind(request: Body) -> str:
    return str((request.get("response_format") or {}).get("json_schema", {}).get("schema", {}).get("type", "object"))


def first(*judgements: tuple[bool, Answer]) -> Answer | None:
    """Give the answer of the first rule that holds."""
    return next((answer for holds, answer in judgements if holds), None)


def has_lone_surrogate(request: Body) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text_of(request))


class Replica(Server):
    """What the four have in common: how a row is judged, in which order, and the states of the process."""

    has_health: ClassVar[bool] = True
    wants_json_type: ClassVar[bool] = True

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self.leaving = False
        self.blocked = False
        self.loaded = options.state != "loading"

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        self.stats.asked[path] += 1
        if path.startswith("/become/"):
            self.models = [path.removeprefix("/become/")]
            return Answer.of({})
        if path == "/finish-loading":
            self.loaded = True
            return Answer.of({})
        if refused := self.denied(path, headers):
            return refused
        if path in {"/stats", "/marks", "/reset"}:
            return await super().answer(method, path, headers, body)
        if path == "/health" and self.has_health:
            return self.health()
        if method == "POST" and self.wants_json_type and headers.get("content-type") != "application/json":
            return self.malformed()
        if method == "POST":
            return await self.row(path, headers, body)
        return self.facts(path)

    def denied(self, path: str, headers: dict[str, str]) -> Answer | None:
        """401 for a wrong key, in the words of the server."""
        return None

    def health(self) -> Answer:
        return Answer.of({"status": "ok"})

    def facts(self, path: str) -> Answer:
        if path == "/v1/models":
            return Answer.of({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
        return self.unknown_path()

    def unknown_path(self) -> Answer:
        return Answer.of({"detail": "Not Found"}, 404)

    def wrong_method(self) -> Answer:
        return Answer.of({"detail": "Method Not Allowed"}, 405)

    async def work(self, number: int, orders: Orders) -> None:
        if self.blocked or self.options.state == "hung":
            await asyncio.Event().wait()
        await super().work(number, orders)

    def completion(self, path: str, number: int, mark: str, body: bytes) -> Answer:
        if path not in {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}:
            return self.wrong_method() if path == "/v1/models" else self.unknown_path()
        try:
            request = json.loads(body)
        except ValueError:
            return self.malformed()
        refused = self.judge_embedding(request) if path == "/v1/embeddings" else self.judge(request)
        if refused:
            return refused
        asked_model = request.get("model")
        plain = request | {"model": self.models[0], "n": 1}
        answer = json.loads(super().completion(path, number, mark, json.dumps(plain).encode()).body)
        answer["model"] = self.answered_model(asked_model)
        self.shape(request, answer)
        return self.streamed(answer) if request.get("stream") is True else Answer.of(answer)

    def malformed(self) -> Answer:
        raise NotImplementedError

    def judge(self, request: Body) -> Answer | None:
        """Refuse a request of chat, or None."""
        raise NotImplementedError

    def judge_embedding(self, request: Body) -> Answer | None:
        return None

    def answered_model(self, asked: Any) -> str:
        return self.models[0]

    def shape(self, request: Body, answer: Body) -> None:
        """Give what was asked for beyond a text."""
        if "choices" in answer:
            for choice in answer["choices"]:
                choice["logprobs"] = {"content": []} if request.get("logprobs") else None
            answer["choices"] *= self.choices(request)
        if "data" in answer and request.get("encoding_format") == "base64":
            for vector in answer["data"]:
                vector["embedding"] = "AACAPgAAAD8="

    def choices(self, request: Body) -> int:
        return int(request.get("n") or 1)

    def streamed(self, answer: Body, *, done: bool = True) -> Answer:
        text = answer["choices"][0]["message"]["content"]
        chunk = {"id": answer["id"], "object": "chat.completion.chunk", "choices": [{"delta": {"content": text}}]}
        frames = f"data: {json.dumps(chunk)}\n\n" + ("data: [DONE]\n\n" if done else "")
        return Answer(200, frames.encode(), type="text/event-stream")

    def leave(self, stop: Callable[[], None]) -> None:
        """Die as the server does when it is told to. `stop` ends the process."""
        stop()


def finish_then(replica: Replica, stop: Callable[[], None]) -> None:
    if replica.stats.in_flight == 0:
        asyncio.get_running_loop().call_later(0.1, stop)
    else:
        asyncio.get_running_loop().call_later(0.02, finish_then, replica, stop)
