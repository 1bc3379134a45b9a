"""vLLM 0.32."""

import asyncio
from collections.abc import Callable

from replicas.base import (
    CONTEXT_TOKENS,
    TOO_LONG,
    Body,
    Replica,
    first,
    has_lone_surrogate,
    is_long_text,
    is_too_long,
    openai_error,
    schema_kind,
)
from runtime_server import Answer, Orders


class VLLM(Replica):
    """vLLM 0.32: refuses what it cannot do as 400, dies with 500, and answers health while its engine hangs."""

    def denied(self, path: str, headers: dict[str, str]) -> Answer | None:
        key = self.options.api_key
        wrong = key and path.startswith("/v1/") and headers.get("authorization") != f"Bearer {key}"
        return Answer.of({"error": "Unauthorized"}, 401) if wrong else None

    def health(self) -> Answer:
        return Answer(503 if self.options.state == "dead" else 200, b"")

    def facts(self, path: str) -> Answer:
        if path == "/version":
            return Answer.of({"version": "0.32.0"})
        return super().facts(path)

    async def row(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if self.options.state == "overloaded" and self.stats.in_flight >= self.options.slots + 4:
            self.stats.requests += 1
            message = "The engine is currently busy and cannot accept new requests. Please retry later."
            return openai_error(503, message, "Service Unavailable", param=None, code=503)
        if self.options.state == "dead":
            self.stats.requests += 1
            return self.engine_died()
        return await super().row(path, headers, body)

    @staticmethod
    def engine_died() -> Answer:
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        return openai_error(500, message, "InternalServerError", param=None, code=500)

    async def work(self, number: int, orders: Orders) -> None:
        working = asyncio.ensure_future(super().work(number, orders))
        try:
            while not working.done() and not self.leaving:
                await asyncio.wait([working], timeout=0.02)
        finally:
            working.cancel()

    def bad(self, message: str, param: str | None = None) -> Answer:
        return openai_error(400, message, "BadRequestError", param=param, code=400)

    def malformed(self) -> Answer:
        return openai_error(400, "[{'type': 'json_invalid'}]", "Bad Request", param=None, code=400)

    def judge(self, request: Body) -> Answer | None:
        tokens = request.get("max_tokens", 1)
        unknown = f"The model `{request.get('model')}` does not exist. Valid aliases: {', '.join(self.models)}."
        no_parser = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        return first(
            (self.leaving, self.engine_died()),
            (self.options.state == "embeddings", self.unknown_path()),
            (
                request.get("model", self.models[0]) not in self.models,
                openai_error(404, unknown, "NotFoundError", param="model", code=404),
            ),
            (is_too_long(request), self.bad(TOO_LONG, "input_text")),
            (not 1 <= tokens <= CONTEXT_TOKENS, self.bad(f"max_tokens must be positive, got {tokens}.", "max_tokens")),
            (request.get("messages") == [], self.bad("messages must not be empty")),
            (request.get("temperature") in {9, "hot"}, self.bad("temperature must be from 0 to 2", "temperature")),
            (schema_kind(request) != "object", self.bad("the grammar cannot be compiled")),
            (bool(request.get("tools")), self.bad(no_parser)),
            (has_lone_surrogate(request), self.bad("surrogates not allowed")),
        )

    def judge_embedding(self, request: Body) -> Answer | None:
        if self.options.state != "embeddings":
            return self.unknown_path()
        inputs = request["input"]
        return first(
            (inputs == [], self.bad("You must pass at least one prompt")),
            (inputs == "", self.bad("The prompt is empty")),
            (is_long_text(inputs), self.bad(TOO_LONG)),
            ("dimensions" in request, self.bad("Model does not support matryoshka representation")),
        )

    def leave(self, stop: Callable[[], None]) -> None:
        """Rows in flight are answered with 500, then nobody listens."""
        self.leaving = True
        asyncio.get_running_loop().call_later(0.3, stop)
