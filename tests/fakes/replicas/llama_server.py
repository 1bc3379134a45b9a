"""llama.cpp's own server b10434, as a program and inside xllamacpp."""

import asyncio
from collections.abc import Callable

from replicas.base import (
    CONTEXT_TOKENS,
    Body,
    Replica,
    first,
    has_lone_surrogate,
    is_long_text,
    is_too_long,
    openai_error,
    schema_kind,
)
from runtime_server import Answer


class LlamaServer(Replica):
    """llama-server b10434: serves its one model under any name, and says 503 while it loads."""

    wants_json_type = False

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if not self.loaded and path not in {"/finish-loading", "/stats"}:
            self.stats.requests += method == "POST"
            if path == "/v1/models":  # as the real one: it lists what it does not serve yet
                return self.facts(path)
            return openai_error(503, "Loading model", "unavailable_error", code=503)
        if self.stats.in_flight > self.options.slots + 4 and path in {"/health", "/metrics", "/v1/models"}:
            await asyncio.Event().wait()  # its few HTTP threads are all taken by rows
        return await super().answer(method, path, headers, body)

    def denied(self, path: str, headers: dict[str, str]) -> Answer | None:
        key = self.options.api_key
        if not key or path in {"/health", "/v1/models"} or headers.get("authorization") == f"Bearer {key}":
            return None
        return openai_error(401, "Invalid API Key", "authentication_error", code=401)

    def unknown_path(self) -> Answer:
        return openai_error(404, "File Not Found", "not_found_error", code=404)

    def wrong_method(self) -> Answer:
        return self.unknown_path()

    def malformed(self) -> Answer:
        return openai_error(500, "[json.exception.parse_error.101] parse error at line 1", "server_error", code=500)

    def judge(self, request: Body) -> Answer | None:
        message = f"the request exceeds the available context size ({CONTEXT_TOKENS} tokens), try increasing it"
        more = {"code": 400, "n_prompt_tokens": 9000, "n_ctx": CONTEXT_TOKENS}
        is_value_bad = request.get("max_tokens", 1) < 0 or request.get("temperature") == "hot"
        return first(
            (is_too_long(request), openai_error(400, message, "exceed_context_size_error", **more)),
            (is_value_bad, self.bad("a parameter has a value it cannot have")),
            (schema_kind(request) != "object", self.bad("JSON schema conversion failed")),
            (has_lone_surrogate(request), self.malformed()),
        )

    @staticmethod
    def bad(message: str) -> Answer:
        return openai_error(400, message, "invalid_request_error", code=400)

    def judge_embedding(self, request: Body) -> Answer | None:
        inputs = request["input"]
        switched_off = "This server does not support embeddings. Start it with `--embeddings`"
        too_large = f"input ({len(inputs)} tokens) is too large to process. increase the physical batch size"
        return first(
            (self.options.state != "embeddings", openai_error(501, switched_off, "not_supported_error", code=501)),
            (inputs == [], openai_error(500, '"prompt" must not be empty', "server_error", code=500)),
            (inputs == "", self.bad("the input must not be empty")),
            (is_long_text(inputs), openai_error(500, too_large, "server_error", code=500)),
        )

    def leave(self, stop: Callable[[], None]) -> None:
        """Nobody listens any more, rows in flight hang, and the process stays until it is killed."""
        self.blocked = True
        self.leaving = True


class Xllamacpp(LlamaServer):
    """The same server inside a Python process: it ends at once and cuts what is in flight."""

    def leave(self, stop: Callable[[], None]) -> None:
        stop()
