"""`transformers serve` 5.24."""

import contextlib
import json
from collections.abc import Callable

from replicas.base import Body, Replica, finish_then, has_lone_surrogate, is_too_long, plain_500
from runtime_server import Answer


class TransformersServe(Replica):
    """`transformers serve` 5.24: pinned to one model, few checks, and one long prompt blocks it for good."""

    def malformed(self) -> Answer:
        return Answer.of({"detail": [{"type": "json_invalid", "loc": ["body", 1], "msg": "JSON decode error"}]}, 422)

    async def row(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with contextlib.suppress(ValueError):
            self.blocked = self.blocked or is_too_long(json.loads(body))
        answer = await super().row(path, headers, body)
        answer.extra += f"X-Request-Id: {headers.get('x-request-id')}\r\n"
        return answer

    def judge(self, request: Body) -> Answer | None:
        if request.get("model", self.models[0]) not in self.models:
            said = f"Server is pinned to '{self.models[0]}'; requested '{request['model']}'."
            return Answer.of({"detail": said}, 400)
        if "zzz" in request:
            return Answer.of({"detail": "Unexpected fields in the request: {'zzz'}"}, 422)
        if (
            request.get("max_tokens", 1) < 1
            or request.get("messages") == []
            or request.get("temperature") == "hot"
            or has_lone_surrogate(request)
        ):
            return plain_500()
        return None

    def choices(self, request: Body) -> int:
        return 1

    def shape(self, request: Body, answer: Body) -> None:
        super().shape(request | {"logprobs": None}, answer)

    def streamed(self, answer: Body, *, done: bool = False) -> Answer:
        return super().streamed(answer, done=done)

    def leave(self, stop: Callable[[], None]) -> None:
        """Rows in flight are answered first; a blocked engine never leaves."""
        finish_then(self, stop)
