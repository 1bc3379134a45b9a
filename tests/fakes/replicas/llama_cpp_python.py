"""llama-cpp-python 0.3.36."""

from collections.abc import Callable
from typing import Any

from replicas.base import TOO_LONG, Body, Replica, finish_then, has_lone_surrogate, is_too_long, openai_error, plain_500
from runtime_server import Answer


class LlamaCppPython(Replica):
    """llama-cpp-python 0.3.36: one row at a time, any model, no health, and 500 for much that is the row's fault."""

    has_health = False

    async def row(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        request_id = headers.get("x-request-id", "")
        if len(request_id) != len("00000000-0000-0000-0000-000000000000"):
            self.stats.requests += 1
            return Answer(400, b"")
        answer = await super().row(path, headers, body)
        answer.extra += f"X-Request-Id: {request_id}\r\n"
        return answer

    def malformed(self) -> Answer:
        return plain_500()

    def judge(self, request: Body) -> Answer | None:
        message = None
        if is_too_long(request):
            return openai_error(
                400, TOO_LONG, "invalid_request_error", param="messages", code="context_length_exceeded"
            )
        if any(entry.get("role") not in {"system", "user", "assistant", "tool"} for entry in request["messages"]):
            message = "Input tag 'poet' found using 'role' does not match any of the expected tags"
        elif request.get("temperature") == "hot":
            message = "Input should be a valid number"
        elif (request.get("response_format") or {}).get("type") == "json_schema":
            message = "Input should be 'text' or 'json_object'"
        elif has_lone_surrogate(request):
            message = "'utf-8' codec can't encode character"
        return openai_error(500, message, "internal_server_error", param=None, code=None) if message else None

    def judge_embedding(self, request: Body) -> Answer | None:
        inputs = request["input"]
        is_tokens = isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], int)
        if inputs in ([], "") or is_tokens:
            return openai_error(500, "llama_decode returned -1", "internal_server_error", param=None, code=None)
        return None

    def answered_model(self, asked: Any) -> str:
        return str(asked)

    def choices(self, request: Body) -> int:
        return 1

    def shape(self, request: Body, answer: Body) -> None:
        super().shape(request | {"encoding_format": "float"}, answer)
        if "data" in answer and self.options.state == "embeddings-of-a-causal-model":
            for vector in answer["data"]:
                vector["embedding"] = [vector["embedding"], vector["embedding"]]

    def leave(self, stop: Callable[[], None]) -> None:
        """Rows in flight are answered first."""
        finish_then(self, stop)
