"""An executor in front of a fake Ollama, and what the fake was sent."""

import json
from dataclasses import dataclass
from typing import Any

from app.domain.rows import Reply
from executors.runtimes.ollama import OllamaExecutor
from tests.executors.running import row_of, run
from tests.fakes.runtime_process import RuntimeProcess

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
NATIVE = {CHAT: "/api/chat", COMPLETIONS: "/api/generate", EMBEDDINGS: "/api/embed"}


@dataclass
class Ollama:
    executor: OllamaExecutor
    process: RuntimeProcess

    def ask(self, endpoint: str, **fields: Any) -> Reply:
        """Run one row."""
        return run(self.executor, row_of(endpoint, **fields))

    def chat(self, content: Any = "Hi [[x]]", **fields: Any) -> Reply:
        """Run a chat of one message."""
        return self.ask(CHAT, messages=[{"role": "user", "content": content}], **fields)

    def sent(self, endpoint: str) -> list[dict[str, Any]]:
        """What the rows of an endpoint were sent as; requests that only load a model left out."""
        bodies = [body for body in self.process.stats()["bodies"] if body.pop("path") == NATIVE[endpoint]]
        return [body for body in bodies if body.get("messages") or body.get("prompt") or body.get("input")]


def answer_of(reply: Reply) -> dict[str, Any]:
    """Read the answer of a row that went well."""
    assert reply.ok, reply
    assert reply.body is not None
    assert len(reply.body.decode("ascii").splitlines()) == 1
    return dict(json.loads(reply.body))


def error_of(reply: Reply) -> dict[str, Any]:
    """Read what the runtime refused a row with."""
    assert reply.body is not None, reply
    return dict(json.loads(reply.body)["error"])
